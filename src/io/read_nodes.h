// read_nodes.h: what the I/O scheduler holds: reads, their parts, and the chunks that are out or wait to be tried
// again.
//
// One node a read, one a part, one a chunk; nodes are linked into lists through their own pointers and reused, so that
// nothing is allocated unless more are held at once than ever before. Owns no threads and takes no locks: the
// scheduler's lock guards all of it.
#pragma once

#include <array>
#include <cstdint>
#include <deque>

#include "io/io_scheduler.h"

namespace deltafin {

struct QueuedPart;

struct QueuedRead {
  IoPriority priority = IoPriority::kDemand;
  IoTag tag = 0;
  IoScheduler::Done done;
  uint64_t bytes = 0;         // of all parts
  uint64_t device_bytes = 0;  // that came so far
  int64_t queued_ns = 0;
  QueuedPart* parts = nullptr;  // all of them, linked by next_of_read
  int parts_waiting = 0;        // in the queue of a drive, not wholly handed out
  int chunks_waiting = 0;       // to be tried again
  int chunks_out = 0;           // at the engine
  bool started = false;         // a chunk was handed out
  bool given_up = false;        // hung: ends with kDeadline before its chunks are back
  bool told = false;            // ... and the caller knows
  Status status;                // the first error, or kCancelled
  QueuedRead* previous = nullptr;
  QueuedRead* next = nullptr;

  bool open() const { return parts_waiting > 0 || chunks_waiting > 0 || chunks_out > 0; }
};

struct QueuedPart {
  ReadPart part;  // without a copy when the copy cannot be used
  QueuedRead* read = nullptr;
  uint64_t handed_out = 0;  // bytes of the request given to a drive, from its start
  uint64_t order = 0;       // parts of all drives in the order in which they came
  QueuedPart* next_of_read = nullptr;
  QueuedPart* previous = nullptr;
  QueuedPart* next = nullptr;

  bool has_copy() const { return part.copy.file != nullptr; }
  uint64_t waiting_bytes() const { return part.request.bytes - handed_out; }
};

struct Chunk {
  uint64_t id = 0;  // its name at the engine: place in the pool
  QueuedPart* part = nullptr;
  ReadRequest range;           // of the part's first place; the copy's is made from it
  bool on_copy = false;        // asked of the copy's drive
  std::array<int, 2> tries{};  // made at the first place, at the copy
  uint64_t widened_bytes = 0;  // of the try that is out
  int64_t out_ns = 0;          // when that try was handed out
  bool hung = false;
  Chunk* previous = nullptr;
  Chunk* next = nullptr;

  int32_t drive() const { return on_copy ? part->part.copy.drive : part->part.drive; }
  int32_t other_drive() const { return on_copy ? part->part.drive : part->part.copy.drive; }
};

// A first-in first-out list; a node is in at most one.
template <typename Node>
class NodeList {
 public:
  bool empty() const { return first_ == nullptr; }
  Node* front() const { return first_; }

  void Append(Node* node) {
    node->previous = last_;
    node->next = nullptr;
    (last_ != nullptr ? last_->next : first_) = node;
    last_ = node;
  }
  void Remove(Node* node) {
    (node->previous != nullptr ? node->previous->next : first_) = node->next;
    (node->next != nullptr ? node->next->previous : last_) = node->previous;
  }
  Node* PopFront() {
    Node* node = first_;
    Remove(node);
    return node;
  }

 private:
  Node* first_ = nullptr;
  Node* last_ = nullptr;
};

template <typename Node>
class NodePool {
 public:
  explicit NodePool(int nodes) {
    for (int i = 0; i < nodes; ++i) Put(Grow());
  }
  Node* Take() { return free_.empty() ? Grow() : free_.PopFront(); }
  void Put(Node* node) { free_.Append(node); }
  Node& at(uint64_t id) { return nodes_[id]; }

 private:
  Node* Grow() {
    Node* node = &nodes_.emplace_back();
    if constexpr (requires { node->id; }) node->id = nodes_.size() - 1;
    return node;
  }

  std::deque<Node> nodes_;
  NodeList<Node> free_;
};

}  // namespace deltafin
