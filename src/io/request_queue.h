// request_queue.h: the reads that the I/O scheduler holds: nodes that are reused, in linked first-in first-out lists.
//
// Owns no threads and takes no locks: the scheduler's lock guards all of it. Nodes are allocated only when more reads
// are held at once than ever before.
#pragma once

#include <cstdint>
#include <deque>

#include "io/io_scheduler.h"

namespace deltafin {

struct QueuedRead {
  ReadRequest request;
  IoPriority priority = IoPriority::kDemand;
  IoTag tag = 0;
  IoScheduler::Done done;
  uint64_t handed_out = 0;  // bytes of the request given to the engine, from its start
  int chunks_in_flight = 0;
  Status status;               // the first error of a chunk, or kCancelled
  QueuedRead* next = nullptr;  // in the list that holds it

  bool started() const { return handed_out > 0; }
};

class ReadList {
 public:
  bool empty() const { return first_ == nullptr; }
  QueuedRead* front() const { return first_; }

  void Append(QueuedRead* read) {
    read->next = nullptr;
    (last_ != nullptr ? last_->next : first_) = read;
    last_ = read;
  }

  QueuedRead* PopFront() {
    QueuedRead* read = first_;
    first_ = read->next;
    if (first_ == nullptr) last_ = nullptr;
    return read;
  }

  // Moves every read for which `leaves` holds to the end of `other`; both keep their order.
  template <typename Predicate>
  void MoveIf(ReadList& other, Predicate leaves) {
    ReadList all = *this;
    *this = ReadList();
    while (!all.empty()) {
      QueuedRead* read = all.PopFront();
      (leaves(*read) ? other : *this).Append(read);
    }
  }

 private:
  QueuedRead* first_ = nullptr;
  QueuedRead* last_ = nullptr;
};

class ReadPool {
 public:
  explicit ReadPool(int nodes) {
    for (int i = 0; i < nodes; ++i) Put(&nodes_.emplace_back());
  }
  QueuedRead* Take() { return free_.empty() ? &nodes_.emplace_back() : free_.PopFront(); }
  // `read` must have given up its callback.
  void Put(QueuedRead* read) { free_.Append(read); }

 private:
  std::deque<QueuedRead> nodes_;
  ReadList free_;
};

}  // namespace deltafin
