// DriveQueues: what waits for each drive, what is out on it, and the choice of what a drive reads next.
//
// A part waits at its first place, in a list for its priority and for the drive that holds its copy. Order: retries,
// then parts as they came. The choice, for each priority in turn:
//   1. A drive takes its own oldest part, and those of degraded drives whose copy it holds. It leaves a part that has a
//      copy where the holder is expected to have it sooner, its own queue included: a slow drive starts nothing that
//      others would then have to wait for.
//   2. With nothing of its own, or where another is far behind, it takes from the drive with the longest expected
//   finish
//      (bytes waiting and out, over the current rate) among those whose copies it holds, if the chunk is expected here
//      before that finish. Those far behind come first because later they may be the only work left, and this drive the
//      only one that can do it.
// So with the same numbers one of the two drives always takes a part; nothing waits for nobody.
// Thread-compatible: under the scheduler's lock.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "io/drive.h"
#include "io/rate_estimate.h"
#include "io/read_nodes.h"

namespace deltafin {

struct DriveQueue {
  struct Parts {
    NodeList<QueuedPart> list;
    uint64_t bytes = 0;  // waiting in it
  };
  struct Retries {
    NodeList<Chunk> list;
    uint64_t bytes = 0;
  };

  DriveQueue(const DriveInfo& info, size_t drives);

  // [priority][drive that holds the copy; the number of drives = none].
  std::array<std::vector<Parts>, kIoPriorities> parts;
  std::array<Retries, kIoPriorities> retries;
  NodeList<Chunk> out;  // at the engine, oldest first
  int chunks_out = 0;
  uint64_t bytes_out = 0;
  RateEstimate rate;
  int failures_in_row = 0;
  int64_t busy_since_ns = 0;
  int64_t progress_ns = 0;  // last answer, or first hand-out to the idle drive
  DriveCounters counters;

  bool good() const { return counters.health == DriveHealth::kGood; }
};

// What a drive should read next: a chunk to be tried again, or the next chunk of a part; or nothing.
struct NextRead {
  Chunk* retry = nullptr;
  QueuedPart* part = nullptr;
  bool from_copy = false;  // of `part`
};

class DriveQueues {
 public:
  explicit DriveQueues(const IoSchedulerOptions& options);

  size_t size() const { return drives_.size(); }
  DriveQueue& at(int32_t drive) { return drives_[static_cast<size_t>(drive)]; }
  const DriveQueue& at(int32_t drive) const { return drives_[static_cast<size_t>(drive)]; }

  void Append(QueuedPart* part);
  void Remove(QueuedPart* part);
  void TookFrom(const QueuedPart* part, uint64_t bytes);  // a chunk of a waiting part was handed out
  void AppendRetry(Chunk* chunk);
  void RemoveRetry(Chunk* chunk);

  // Sizes for a chunk of `drive`, and how much may be out when a chunk of `priority` is added.
  uint64_t ChunkBytes(int32_t drive, int64_t now_ns) const;
  uint64_t WindowBytes(int32_t drive, IoPriority priority, int64_t now_ns) const;
  NextRead Next(int32_t drive, int64_t now_ns) const;

  // Whether `drive` reads the waiting part itself, or the good holder of its copy does in its place.
  bool Serves(int32_t drive, size_t holder) const;
  // Bytes that wait for `drive` at `lowest` priority or a higher one.
  uint64_t WaitingBytes(int32_t drive, int lowest) const;
  // Parts wait that another drive could take: the choice depends on the time.
  bool ChoiceWaits() const { return parts_with_copy_ > 0; }
  bool empty() const { return waiting_ == 0; }

  // Calls `visit(QueuedPart*)` for every waiting part, priority by priority; `visit` may remove it, and only it.
  template <typename Visit>
  void EachPart(Visit visit) {
    for (size_t priority = 0; priority < kIoPriorities; ++priority)
      for (DriveQueue& drive : drives_)
        for (DriveQueue::Parts& parts : drive.parts[priority])
          for (QueuedPart* part = parts.list.front(); part != nullptr;) {
            QueuedPart* next = part->next;
            visit(part);
            part = next;
          }
  }

 private:
  DriveQueue::Parts& ListOf(const QueuedPart* part);
  DriveQueue::Retries& RetriesOf(const Chunk* chunk);
  double Rate(int32_t drive, int64_t now_ns) const;
  // Seconds until `drive` has read what is out, and `more` bytes after it.
  double SecondsUntil(int32_t drive, uint64_t more, int64_t now_ns) const;
  // Bytes of the chunk that `drive` would take of `part`.
  uint64_t NextBytes(int32_t drive, const QueuedPart& part, int64_t now_ns) const;
  bool BetterAtHolder(int32_t drive, const QueuedPart& part, int64_t now_ns) const;
  NextRead NextOwn(int32_t drive, int priority, int64_t now_ns) const;
  // Of drives whose expected finish is later than in `longest` seconds.
  NextRead NextOfOthers(int32_t drive, int priority, double longest, int64_t now_ns) const;

  const uint64_t fixed_chunk_bytes_, fixed_window_bytes_;  // 0 = from the rate
  const bool background_yields_;
  std::vector<DriveQueue> drives_;
  uint64_t order_ = 0;
  size_t waiting_ = 0;  // parts and retries
  size_t parts_with_copy_ = 0;
};

}  // namespace deltafin
