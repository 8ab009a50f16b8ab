// ReadDispatcher: everything the I/O scheduler decides: which chunk goes to which drive when, what an answer means for
// its read, what happens after an error or a hang. The state of IoScheduler, without its thread, lock and call-backs.
//
// The scheduler calls it under its lock and passes the time in, so that it can be driven by hand. It calls nobody: what
// is to be submitted is appended to a list, reads that ended wait in ended(), drives that were given up in degraded().
// Contract and faults: io/io_scheduler.h; the choice among drives: io/drive_queues.h. No allocation unless more is held
// than ever before, or something fails. Thread-compatible.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "io/drive_queues.h"
#include "io/io_scheduler.h"
#include "io/read_nodes.h"

namespace deltafin {

class ReadDispatcher {
 public:
  struct Submission {
    uint64_t id;
    ReadRequest request;
  };

  // `depth` chunks are at the engine at most.
  ReadDispatcher(const IoSchedulerOptions& options, int depth);

  void Add(std::span<const ReadPart> parts, IoPriority priority, IoTag tag, IoScheduler::Done done, int64_t now_ns);
  void Cancel(IoTag tag);
  void CancelAll();
  void Raise(IoTag tag, IoPriority priority);

  // Hands out chunks while drives and engine have room.
  void HandOut(int64_t now_ns, std::vector<Submission>* out);
  void Answer(IoCompletion& completion, int64_t now_ns);
  // Gives up what took too long.
  void CheckHangs(int64_t now_ns);
  // When HandOut or CheckHangs have something to do even if nothing else happens; -1: never.
  int64_t NextLookNs(int64_t now_ns) const;

  // Reads to be called back with their status; then Told() takes each back. Unless the read was given_up and not told,
  // it was the last call, and `done` must be gone.
  NodeList<QueuedRead>& ended() { return ended_; }
  void Told(QueuedRead* read);
  // Drives degraded since the list was last cleared, with the reason.
  std::vector<std::pair<int32_t, std::string>>& degraded() { return degraded_; }

  bool idle() const { return chunks_out_ == 0 && queues_.empty() && ended_.empty(); }
  IoCounters counters(int64_t now_ns) const;
  std::vector<DriveCounters> drive_counters(int64_t now_ns) const;

 private:
  bool SlotFor(int32_t drive) const;
  bool HandOutOne(int32_t drive, int64_t now_ns, std::vector<Submission>* out);
  void Send(Chunk* chunk, const ReadRequest& request, int64_t now_ns, std::vector<Submission>* out);
  void TakeBack(Chunk* chunk, const IoCompletion& completion, int64_t now_ns);
  template <typename Predicate>
  void CancelIf(Predicate wanted);
  // Hands out no more of the read.
  void Withdraw(QueuedRead* read);
  void EndIfDone(QueuedRead* read);

  // Errors: tries the chunk again where there is hope, else its read fails.
  void TakeError(Chunk* chunk, Status status);
  void FailRead(Chunk* chunk, Status status);
  void Degrade(int32_t drive, std::string reason);
  void MoveRetriesToCopies(int32_t drive);
  int64_t HangNs(const Chunk& chunk) const;
  void GiveUp(Chunk* chunk, int64_t now_ns);
  void GiveUp(QueuedRead* read, Status status);
  void GiveUpWaiting(int32_t drive, int64_t now_ns);
  // A read that waits for `drive` since before `since_ns`; null when there is none. Lowers *next_ns to when there is
  // one.
  QueuedRead* WaitsTooLong(int32_t drive, int64_t now_ns, int64_t* next_ns);
  std::string DriveName(int32_t drive) const;

  std::vector<DriveInfo> infos_;
  const int64_t hang_ns_, hang_with_copy_ns_;
  const int depth_, reserve_;  // chunks at the engine: all, and those kept for each drive
  DriveQueues queues_;
  NodePool<QueuedRead> reads_;
  NodePool<QueuedPart> parts_;
  NodePool<Chunk> chunks_;
  int chunks_out_ = 0;
  int64_t busy_since_ns_ = 0;
  int64_t next_hang_ns_;
  IoCounters counters_;
  NodeList<QueuedRead> ended_;
  std::vector<std::pair<int32_t, std::string>> degraded_;
};

}  // namespace deltafin
