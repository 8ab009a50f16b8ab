#include "io/read_dispatcher.h"

#include <algorithm>
#include <limits>

#include "io/chunk_cut.h"

namespace deltafin {
namespace {

// Nodes held at once before the pools grow.
constexpr int kInitialReads = 256;
constexpr int kInitialParts = 1024;
constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
// While a part waits that another drive could take: the choice is made again after this, answers or not.
constexpr int64_t kChooseAgainNs = 4'000'000;

int64_t Nanoseconds(double seconds) { return static_cast<int64_t>(std::clamp(seconds, 0.0, 1e9) * 1e9); }

}  // namespace

ReadDispatcher::ReadDispatcher(const IoSchedulerOptions& options, int depth)
    : infos_(options.drives),
      hang_ns_(Nanoseconds(options.hang_seconds)),
      hang_with_copy_ns_(Nanoseconds(options.hang_seconds_with_copy)),
      depth_(depth),
      reserve_(std::max(1, depth / (2 * static_cast<int>(options.drives.size())))),
      queues_(options),
      reads_(kInitialReads),
      parts_(kInitialParts),
      chunks_(depth),
      next_hang_ns_(kNever) {}

void ReadDispatcher::Add(std::span<const ReadPart> parts, IoPriority priority, IoTag tag, IoScheduler::Done done,
                         int64_t now_ns) {
  QueuedRead* read = reads_.Take();
  read->priority = priority;
  read->tag = tag;
  read->done = std::move(done);
  read->queued_ns = now_ns;
  read->bytes = 0;
  read->device_bytes = 0;
  read->parts = nullptr;
  read->started = read->given_up = read->told = false;
  read->status = Status();
  for (const ReadPart& part : parts) {
    QueuedPart* node = parts_.Take();
    node->part = part;
    if (!CopyFits(part)) node->part.copy = {};
    node->read = read;
    node->handed_out = 0;
    node->next_of_read = std::exchange(read->parts, node);
    read->bytes += part.request.bytes;
    ++read->parts_waiting;
    queues_.Append(node);
  }
  next_hang_ns_ = std::min(next_hang_ns_, now_ns + hang_ns_);
}

template <typename Predicate>
void ReadDispatcher::CancelIf(Predicate wanted) {
  NodeList<QueuedRead> under_way;  // withdrawn afterwards: that touches more than the part that is visited
  queues_.EachPart([&](QueuedPart* part) {
    QueuedRead* read = part->read;
    if (!wanted(*read)) return;
    const bool is_first = static_cast<bool>(read->status);
    // Happens for every wrong guess of a prefetch: short enough for a string that allocates nothing.
    if (is_first) read->status = Failure(Error(ErrorCode::kCancelled, "cancelled"));
    if (read->started) {
      if (is_first) under_way.Append(read);
      return;
    }
    queues_.Remove(part);
    if (--read->parts_waiting > 0) return;
    ++counters_.cancelled;
    ended_.Append(read);
  });
  while (!under_way.empty()) {
    QueuedRead* read = under_way.PopFront();
    Withdraw(read);
    ++counters_.cancelled;
    EndIfDone(read);
  }
}

void ReadDispatcher::Cancel(IoTag tag) {
  CancelIf([tag](const QueuedRead& read) { return read.tag == tag; });
}

void ReadDispatcher::CancelAll() {
  if (queues_.empty()) return;
  CancelIf([](const QueuedRead&) { return true; });
}

void ReadDispatcher::Raise(IoTag tag, IoPriority priority) {
  NodeList<QueuedPart> raised;
  queues_.EachPart([&](QueuedPart* part) {
    if (part->read->tag != tag || part->read->priority <= priority) return;
    queues_.Remove(part);
    raised.Append(part);
  });
  // A read's priority tells in which lists its parts and chunks are, so it changes when none of them is in one.
  std::vector<Chunk*> retries;
  for (size_t drive = 0; drive < queues_.size(); ++drive)
    for (size_t p = static_cast<size_t>(priority) + 1; p < kIoPriorities; ++p)
      for (Chunk* chunk = queues_.at(static_cast<int32_t>(drive)).retries[p].list.front(); chunk != nullptr;
           chunk = chunk->next)
        if (chunk->part->read->tag == tag) retries.push_back(chunk);
  for (Chunk* chunk : retries) queues_.RemoveRetry(chunk);
  for (Chunk* chunk : retries) chunk->part->read->priority = priority;
  for (Chunk* chunk : retries) queues_.AppendRetry(chunk);
  for (QueuedPart* part = raised.front(); part != nullptr; part = part->next) part->read->priority = priority;
  while (!raised.empty()) queues_.Append(raised.PopFront());
}

// Some of the engine's depth is kept for every drive, so that one that does not answer cannot take all of it.
bool ReadDispatcher::SlotFor(int32_t drive) const {
  int free = depth_ - chunks_out_;
  if (free <= 0) return false;
  if (queues_.at(drive).chunks_out < reserve_) return true;
  for (size_t other = 0; other < queues_.size(); ++other)
    free -= std::max(0, reserve_ - queues_.at(static_cast<int32_t>(other)).chunks_out);
  return free > 0;
}

void ReadDispatcher::HandOut(int64_t now_ns, std::vector<Submission>* out) {
  // One chunk a drive in turn, so that all drives start at the same time.
  for (bool more = !queues_.empty(); more;) {
    more = false;
    for (size_t drive = 0; drive < queues_.size(); ++drive)
      more |= HandOutOne(static_cast<int32_t>(drive), now_ns, out);
  }
}

bool ReadDispatcher::HandOutOne(int32_t drive, int64_t now_ns, std::vector<Submission>* out) {
  if (!SlotFor(drive)) return false;
  const NextRead next = queues_.Next(drive, now_ns);
  if (next.retry == nullptr && next.part == nullptr) return false;
  const ReadPart& part = next.retry != nullptr ? next.retry->part->part : next.part->part;
  const bool on_copy = next.retry != nullptr ? next.retry->on_copy : next.from_copy;
  const ReadRequest range = next.retry != nullptr
                                ? next.retry->range
                                : NextChunk(part, next.part->handed_out, queues_.ChunkBytes(drive, now_ns));
  const ReadRequest request = on_copy ? AtCopy(part, range) : range;
  const DriveQueue& queue = queues_.at(drive);
  const uint64_t widened = WidenedBytes(request.offset, request.bytes, request.file->alignment());
  const IoPriority priority = (next.retry != nullptr ? next.retry->part : next.part)->read->priority;
  if (queue.bytes_out > 0 && queue.bytes_out + widened > queues_.WindowBytes(drive, priority, now_ns)) return false;

  Chunk* chunk = next.retry;
  if (chunk != nullptr) {
    queues_.RemoveRetry(chunk);
    --chunk->part->read->chunks_waiting;
  } else {
    chunk = chunks_.Take();
    chunk->part = next.part;
    chunk->range = range;
    chunk->on_copy = on_copy;
    chunk->tries = {};
    queues_.TookFrom(next.part, range.bytes);
    next.part->handed_out += range.bytes;
    if (next.part->waiting_bytes() == 0) {
      queues_.Remove(next.part);
      --next.part->read->parts_waiting;
    }
  }
  Send(chunk, request, now_ns, out);
  return true;
}

void ReadDispatcher::Send(Chunk* chunk, const ReadRequest& request, int64_t now_ns, std::vector<Submission>* out) {
  QueuedRead* read = chunk->part->read;
  const int32_t drive = chunk->drive();
  DriveQueue& queue = queues_.at(drive);
  chunk->widened_bytes = WidenedBytes(request.offset, request.bytes, request.file->alignment());
  chunk->out_ns = now_ns;
  chunk->hung = false;
  ++chunk->tries[chunk->on_copy ? 1 : 0];
  out->push_back({chunk->id, request});
  read->started = true;
  ++read->chunks_out;

  queue.rate.HandOut(now_ns, queue.bytes_out, queue.bytes_out + chunk->widened_bytes,
                     queues_.ChunkBytes(drive, now_ns));
  queue.out.Append(chunk);
  queue.bytes_out += chunk->widened_bytes;
  if (queue.chunks_out++ == 0) queue.busy_since_ns = queue.progress_ns = now_ns;
  queue.counters.most_in_flight = std::max(queue.counters.most_in_flight, queue.chunks_out);
  if (chunks_out_++ == 0) busy_since_ns_ = now_ns;
  next_hang_ns_ = std::min(next_hang_ns_, now_ns + HangNs(*chunk));
}

// The drive's side of an answer.
void ReadDispatcher::TakeBack(Chunk* chunk, const IoCompletion& completion, int64_t now_ns) {
  const int32_t drive = chunk->drive();
  DriveQueue& queue = queues_.at(drive);
  queue.out.Remove(chunk);
  queue.bytes_out -= chunk->widened_bytes;
  queue.rate.Answer(now_ns, completion.status ? chunk->widened_bytes : 0, queue.bytes_out,
                    queues_.ChunkBytes(drive, now_ns));
  queue.progress_ns = now_ns;
  if (--queue.chunks_out == 0) queue.counters.busy_seconds += SecondsBetween(queue.busy_since_ns, now_ns);
  if (--chunks_out_ == 0) counters_.busy_seconds += SecondsBetween(busy_since_ns_, now_ns);
  ++queue.counters.chunks;
  queue.counters.latency.Add(now_ns - chunk->out_ns);
  queue.counters.read_seconds += SecondsBetween(chunk->out_ns, now_ns);
  queue.counters.device_bytes += completion.bytes_read;
  counters_.device_bytes += completion.bytes_read;
  chunk->part->read->device_bytes += completion.bytes_read;
  if (chunk->on_copy) queue.counters.replica_bytes += completion.bytes_read;
  if (completion.status) queue.failures_in_row = 0;
}

void ReadDispatcher::Answer(IoCompletion& completion, int64_t now_ns) {
  Chunk* chunk = &chunks_.at(completion.id);
  QueuedRead* read = chunk->part->read;
  TakeBack(chunk, completion, now_ns);
  --read->chunks_out;
  if (completion.status) {
    chunks_.Put(chunk);
  } else {
    TakeError(chunk, std::move(completion.status));
  }
  EndIfDone(read);
}

void ReadDispatcher::Withdraw(QueuedRead* read) {
  for (QueuedPart* part = read->parts; part != nullptr; part = part->next_of_read) {
    if (part->waiting_bytes() == 0) continue;
    queues_.Remove(part);
    part->handed_out = part->part.request.bytes;
  }
  read->parts_waiting = 0;
  for (size_t drive = 0; drive < queues_.size() && read->chunks_waiting > 0; ++drive) {
    Chunk* chunk = queues_.at(static_cast<int32_t>(drive)).retries[static_cast<size_t>(read->priority)].list.front();
    while (chunk != nullptr) {
      Chunk* next = chunk->next;
      if (chunk->part->read == read) {
        queues_.RemoveRetry(chunk);
        --read->chunks_waiting;
        chunks_.Put(chunk);
      }
      chunk = next;
    }
  }
}

void ReadDispatcher::EndIfDone(QueuedRead* read) {
  if (read->open()) return;
  if (read->given_up) {
    if (!read->told) return;  // Told() comes and sees that nothing is out any more
    read->status = Fail(ErrorCode::kCancelled, "the drive has let go of the memory");
    ended_.Append(read);
    return;
  }
  if (read->status) {
    ++counters_.reads;
    counters_.payload_bytes += read->bytes;
  } else if (read->status.error().code() == ErrorCode::kCancelled) {
    if (read->priority == IoPriority::kGuess) counters_.cancelled_guess_bytes += read->device_bytes;
  } else {
    ++counters_.errors;
  }
  ended_.Append(read);
}

void ReadDispatcher::Told(QueuedRead* read) {
  if (read->given_up && !read->told) {
    read->told = true;
    return EndIfDone(read);
  }
  for (QueuedPart* part = read->parts; part != nullptr;) {
    QueuedPart* next = part->next_of_read;
    parts_.Put(part);
    part = next;
  }
  reads_.Put(read);
}

int64_t ReadDispatcher::NextLookNs(int64_t now_ns) const {
  if (chunks_out_ == 0 && queues_.empty()) return -1;
  const int64_t choose_ns = queues_.ChoiceWaits() ? now_ns + kChooseAgainNs : kNever;
  const int64_t next_ns = std::min(choose_ns, next_hang_ns_);
  return next_ns == kNever ? -1 : next_ns;
}

IoCounters ReadDispatcher::counters(int64_t now_ns) const {
  IoCounters now = counters_;
  if (chunks_out_ > 0) now.busy_seconds += SecondsBetween(busy_since_ns_, now_ns);
  return now;
}

std::vector<DriveCounters> ReadDispatcher::drive_counters(int64_t now_ns) const {
  std::vector<DriveCounters> all;
  for (size_t i = 0; i < queues_.size(); ++i) {
    const auto drive = static_cast<int32_t>(i);
    const DriveQueue& queue = queues_.at(drive);
    DriveCounters now = queue.counters;
    if (queue.chunks_out > 0) now.busy_seconds += SecondsBetween(queue.busy_since_ns, now_ns);
    now.queued_bytes = queues_.WaitingBytes(drive, kIoPriorities - 1);
    now.in_flight_bytes = queue.bytes_out;
    now.bytes_per_second = queue.rate.Current(now_ns);
    all.push_back(now);
  }
  return all;
}

}  // namespace deltafin
