// What ReadDispatcher does about reads that fail or take too long. Rules: io/io_scheduler.h.
#include <algorithm>
#include <limits>

#include "io/chunk_cut.h"
#include "io/read_dispatcher.h"

namespace deltafin {
namespace {

constexpr int kTriesAPlace = 2;
constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

}  // namespace

std::string ReadDispatcher::DriveName(int32_t drive) const {
  const std::string& name = infos_[static_cast<size_t>(drive)].name;
  return name.empty() ? Cat("drive ", drive) : Cat("drive ", name);
}

void ReadDispatcher::TakeError(Chunk* chunk, Status status) {
  QueuedRead* read = chunk->part->read;
  const int32_t drive = chunk->drive();
  DriveQueue& queue = queues_.at(drive);
  ++queue.counters.errors;
  if (++queue.failures_in_row >= IoScheduler::kDegradeAfter)
    Degrade(drive, Cat(queue.failures_in_row, " reads in a row failed, the last: ", status.error().message()));
  if (!read->status) return chunks_.Put(chunk);  // it failed before, or was given up

  const size_t place = chunk->on_copy ? 1 : 0;
  // A file that ends early will do so again.
  if (status.error().code() != ErrorCode::kIo) chunk->tries[place] = kTriesAPlace;
  const bool other = chunk->part->has_copy() && chunk->tries[1 - place] < kTriesAPlace;
  const bool same = chunk->tries[place] < kTriesAPlace && (queue.good() || !other);
  if (!same && !other) return FailRead(chunk, std::move(status));
  if (same)
    ++queue.counters.retries;
  else
    chunk->on_copy = !chunk->on_copy;
  ++read->chunks_waiting;
  queues_.AppendRetry(chunk);
}

void ReadDispatcher::FailRead(Chunk* chunk, Status status) {
  QueuedRead* read = chunk->part->read;
  const int tries = chunk->tries[0] + chunk->tries[1];
  const bool both = chunk->tries[0] > 0 && chunk->tries[1] > 0;
  const std::string where = both ? Cat(DriveName(chunk->drive()), " (and ", DriveName(chunk->other_drive()), " before)")
                                 : DriveName(chunk->drive());
  read->status = FailWith(std::move(status), Cat(where, ", ", tries, tries == 1 ? " try" : " tries"));
  chunks_.Put(chunk);
  Withdraw(read);
}

void ReadDispatcher::Degrade(int32_t drive, std::string reason) {
  DriveQueue& queue = queues_.at(drive);
  if (!queue.good()) return;
  queue.counters.health = DriveHealth::kDegraded;
  degraded_.emplace_back(drive, std::move(reason));
  MoveRetriesToCopies(drive);
}

// Parts need no move: from now on the holders of their copies serve them where they are.
void ReadDispatcher::MoveRetriesToCopies(int32_t drive) {
  for (DriveQueue::Retries& retries : queues_.at(drive).retries) {
    for (Chunk* chunk = retries.list.front(); chunk != nullptr;) {
      Chunk* next = chunk->next;
      const size_t other_place = chunk->on_copy ? 0 : 1;
      if (chunk->part->has_copy() && chunk->tries[other_place] < kTriesAPlace &&
          queues_.at(chunk->other_drive()).good()) {
        queues_.RemoveRetry(chunk);
        chunk->on_copy = !chunk->on_copy;
        queues_.AppendRetry(chunk);
      }
      chunk = next;
    }
  }
}

int64_t ReadDispatcher::HangNs(const Chunk& chunk) const {
  return chunk.part->has_copy() && queues_.at(chunk.other_drive()).good() ? std::min(hang_with_copy_ns_, hang_ns_)
                                                                          : hang_ns_;
}

void ReadDispatcher::CheckHangs(int64_t now_ns) {
  if (now_ns < next_hang_ns_) return;
  next_hang_ns_ = kNever;
  for (size_t i = 0; i < queues_.size(); ++i) {
    const auto drive = static_cast<int32_t>(i);
    for (Chunk* chunk = queues_.at(drive).out.front(); chunk != nullptr; chunk = chunk->next) {
      if (chunk->hung) continue;
      const int64_t due_ns = chunk->out_ns + HangNs(*chunk);
      if (due_ns <= now_ns)
        GiveUp(chunk, now_ns);
      else
        next_hang_ns_ = std::min(next_hang_ns_, due_ns);
    }
  }
  // Second, because giving up drives above decides who serves what.
  for (size_t i = 0; i < queues_.size(); ++i) GiveUpWaiting(static_cast<int32_t>(i), now_ns);
}

void ReadDispatcher::GiveUp(Chunk* chunk, int64_t now_ns) {
  const int32_t drive = chunk->drive();
  const ReadRequest request = chunk->on_copy ? AtCopy(chunk->part->part, chunk->range) : chunk->range;
  chunk->hung = true;
  ++queues_.at(drive).counters.hung;
  const std::string what =
      Cat("reading ", request.file->path(), ": bytes ", request.offset, " to ", request.offset + request.bytes,
          ": no answer for ", SecondsBetween(chunk->out_ns, now_ns), " s");
  Degrade(drive, what);
  GiveUp(chunk->part->read,
         Fail(ErrorCode::kDeadline, DriveName(drive), ": ", what, ": check the drive, its cable and the system log"));
}

void ReadDispatcher::GiveUp(QueuedRead* read, Status status) {
  if (read->given_up) return;
  read->given_up = true;
  read->status = std::move(status);
  ++counters_.errors;
  Withdraw(read);
  ended_.Append(read);
}

// Reads behind a drive that answers nothing at all.
void ReadDispatcher::GiveUpWaiting(int32_t drive, int64_t now_ns) {
  const DriveQueue& queue = queues_.at(drive);
  if (queues_.WaitingBytes(drive, kIoPriorities - 1) == 0) return;
  // An idle drive is asked at once; look again later in case it does not answer then.
  if (queue.chunks_out == 0 || queue.progress_ns + hang_ns_ > now_ns) {
    next_hang_ns_ = std::min(next_hang_ns_, (queue.chunks_out == 0 ? now_ns : queue.progress_ns) + hang_ns_);
    return;
  }
  while (QueuedRead* read = WaitsTooLong(drive, now_ns, &next_hang_ns_)) {
    const QueuedPart* part = read->parts;
    while (part->part.drive != drive && part->next_of_read != nullptr) part = part->next_of_read;
    const ReadRequest& wanted = part->part.request;
    const Status status =
        Fail(ErrorCode::kDeadline, DriveName(drive), ": reading ", wanted.file->path(), ": bytes ", wanted.offset,
             " to ", wanted.offset + wanted.bytes, ": waited ", SecondsBetween(read->queued_ns, now_ns),
             " s for a drive that answers nothing: check the drive, its cable and the system log");
    GiveUp(read, status);
  }
}

QueuedRead* ReadDispatcher::WaitsTooLong(int32_t drive, int64_t now_ns, int64_t* next_ns) {
  const auto too_long = [&](QueuedRead* read) {
    if (read->queued_ns + hang_ns_ <= now_ns) return true;
    *next_ns = std::min(*next_ns, read->queued_ns + hang_ns_);
    return false;
  };
  DriveQueue& queue = queues_.at(drive);
  for (size_t priority = 0; priority < kIoPriorities; ++priority) {
    for (Chunk* chunk = queue.retries[priority].list.front(); chunk != nullptr; chunk = chunk->next)
      if (too_long(chunk->part->read)) return chunk->part->read;
    for (size_t holder = 0; holder <= queues_.size(); ++holder) {
      if (!queues_.Serves(drive, holder)) continue;
      for (QueuedPart* part = queue.parts[priority][holder].list.front(); part != nullptr; part = part->next)
        if (too_long(part->read)) return part->read;
    }
  }
  return nullptr;
}

}  // namespace deltafin
