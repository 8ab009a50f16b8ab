#include "io/drive_queues.h"

#include <algorithm>

namespace deltafin {
namespace {

// Of a drive about which nothing is known, when it is compared with another: only until it has answered a few times.
constexpr double kUnknownRate = 1e9;
// A drive whose expected finish is so many times later than one's own is helped first.
constexpr double kFarBehind = 1.1;
// Chunks out when a guess is added, or a quarter of the window: enough to keep a drive busy, and soon over when a
// demand read comes.
constexpr uint64_t kGuessChunks = 8;

}  // namespace

DriveQueue::DriveQueue(const DriveInfo& info, size_t drives) : rate(info.bytes_per_second) {
  for (std::vector<Parts>& lists : parts) lists.resize(drives + 1);
}

DriveQueues::DriveQueues(const IoSchedulerOptions& options)
    : fixed_chunk_bytes_(options.chunk_bytes),
      fixed_window_bytes_(options.window_bytes),
      background_yields_(options.background_yields) {
  DFIN_CHECK(!options.drives.empty(), "the scheduler has a drive");
  for (const DriveInfo& info : options.drives) drives_.emplace_back(info, options.drives.size());
}

DriveQueue::Parts& DriveQueues::ListOf(const QueuedPart* part) {
  const size_t holder = part->has_copy() ? static_cast<size_t>(part->part.copy.drive) : size();
  return at(part->part.drive).parts[static_cast<size_t>(part->read->priority)][holder];
}

DriveQueue::Retries& DriveQueues::RetriesOf(const Chunk* chunk) {
  return at(chunk->drive()).retries[static_cast<size_t>(chunk->part->read->priority)];
}

void DriveQueues::Append(QueuedPart* part) {
  DriveQueue::Parts& parts = ListOf(part);
  part->order = order_++;
  parts.list.Append(part);
  parts.bytes += part->waiting_bytes();
  parts_with_copy_ += part->has_copy() ? 1 : 0;
  ++waiting_;
}

void DriveQueues::Remove(QueuedPart* part) {
  DriveQueue::Parts& parts = ListOf(part);
  parts.list.Remove(part);
  parts.bytes -= part->waiting_bytes();
  parts_with_copy_ -= part->has_copy() ? 1 : 0;
  --waiting_;
}

void DriveQueues::TookFrom(const QueuedPart* part, uint64_t bytes) { ListOf(part).bytes -= bytes; }

void DriveQueues::AppendRetry(Chunk* chunk) {
  DriveQueue::Retries& retries = RetriesOf(chunk);
  retries.list.Append(chunk);
  retries.bytes += chunk->range.bytes;
  ++waiting_;
}

void DriveQueues::RemoveRetry(Chunk* chunk) {
  DriveQueue::Retries& retries = RetriesOf(chunk);
  retries.list.Remove(chunk);
  retries.bytes -= chunk->range.bytes;
  --waiting_;
}

uint64_t DriveQueues::ChunkBytes(int32_t drive, int64_t now_ns) const {
  return fixed_chunk_bytes_ > 0 ? fixed_chunk_bytes_ : ChunkBytesFor(at(drive).rate.ForSizes(now_ns));
}

uint64_t DriveQueues::WindowBytes(int32_t drive, IoPriority priority, int64_t now_ns) const {
  const uint64_t chunk = ChunkBytes(drive, now_ns);
  const uint64_t window =
      fixed_window_bytes_ > 0 ? fixed_window_bytes_ : WindowBytesFor(at(drive).rate.ForSizes(now_ns), chunk);
  const bool yields = priority == IoPriority::kGuess || (priority == IoPriority::kBackground && background_yields_);
  return yields ? std::min(window, std::max(kGuessChunks * chunk, window / 4)) : window;
}

double DriveQueues::Rate(int32_t drive, int64_t now_ns) const {
  const double rate = at(drive).rate.Current(now_ns);
  return rate > 0 ? rate : kUnknownRate;
}

double DriveQueues::SecondsUntil(int32_t drive, uint64_t more, int64_t now_ns) const {
  return static_cast<double>(at(drive).bytes_out + more) / Rate(drive, now_ns);
}

bool DriveQueues::Serves(int32_t drive, size_t holder) const {
  if (holder == size()) return true;
  return at(drive).good() || !drives_[holder].good();
}

uint64_t DriveQueues::WaitingBytes(int32_t drive, int lowest) const {
  uint64_t bytes = 0;
  for (size_t priority = 0; priority <= static_cast<size_t>(lowest); ++priority) {
    bytes += at(drive).retries[priority].bytes;
    for (size_t holder = 0; holder <= size(); ++holder)
      if (Serves(drive, holder)) bytes += at(drive).parts[priority][holder].bytes;
    if (!at(drive).good()) continue;
    for (const DriveQueue& other : drives_)
      if (!other.good()) bytes += other.parts[priority][static_cast<size_t>(drive)].bytes;
  }
  return bytes;
}

NextRead DriveQueues::Next(int32_t drive, int64_t now_ns) const {
  if (waiting_ == 0) return {};
  for (int priority = 0; priority < kIoPriorities; ++priority) {
    const NextRead own = NextOwn(drive, priority, now_ns);
    if (own.retry != nullptr) return own;
    double longest = 0;
    if (own.part != nullptr) longest = kFarBehind * SecondsUntil(drive, WaitingBytes(drive, priority), now_ns);
    const NextRead of_others = NextOfOthers(drive, priority, longest, now_ns);
    if (of_others.part != nullptr) return of_others;
    if (own.part != nullptr) return own;
  }
  return {};
}

uint64_t DriveQueues::NextBytes(int32_t drive, const QueuedPart& part, int64_t now_ns) const {
  return std::min(part.waiting_bytes(), ChunkBytes(drive, now_ns));
}

bool DriveQueues::BetterAtHolder(int32_t drive, const QueuedPart& part, int64_t now_ns) const {
  if (!part.has_copy() || !at(part.part.copy.drive).good()) return false;
  const int32_t there = part.part.copy.drive;
  const int priority = static_cast<int>(part.read->priority);
  const uint64_t chunk = NextBytes(drive, part, now_ns);
  return SecondsUntil(there, WaitingBytes(there, priority) + chunk, now_ns) < SecondsUntil(drive, chunk, now_ns);
}

NextRead DriveQueues::NextOwn(int32_t drive, int priority, int64_t now_ns) const {
  const auto p = static_cast<size_t>(priority);
  const DriveQueue& own = at(drive);
  if (!own.retries[p].list.empty()) return {.retry = own.retries[p].list.front()};
  NextRead next;
  const auto consider = [&next](QueuedPart* part, bool from_copy) {
    if (next.part == nullptr || part->order < next.part->order) next = {nullptr, part, from_copy};
  };
  for (size_t holder = 0; holder <= size(); ++holder) {
    const DriveQueue::Parts& parts = own.parts[p][holder];
    if (parts.list.empty() || !Serves(drive, holder)) continue;
    if (BetterAtHolder(drive, *parts.list.front(), now_ns)) continue;
    consider(parts.list.front(), false);
  }
  if (!own.good()) return next;
  for (const DriveQueue& other : drives_) {
    const DriveQueue::Parts& parts = other.parts[p][static_cast<size_t>(drive)];
    if (!other.good() && !parts.list.empty()) consider(parts.list.front(), true);
  }
  return next;
}

NextRead DriveQueues::NextOfOthers(int32_t drive, int priority, double longest, int64_t now_ns) const {
  if (!at(drive).good() || parts_with_copy_ == 0) return {};
  NextRead next;
  for (size_t other = 0; other < size(); ++other) {
    const DriveQueue::Parts& parts = drives_[other].parts[static_cast<size_t>(priority)][static_cast<size_t>(drive)];
    if (parts.list.empty() || !drives_[other].good()) continue;
    const auto there = static_cast<int32_t>(other);
    const double finish = SecondsUntil(there, WaitingBytes(there, priority), now_ns);
    if (finish <= longest) continue;
    if (finish <= SecondsUntil(drive, NextBytes(drive, *parts.list.front(), now_ns), now_ns)) continue;
    longest = finish;
    next = {nullptr, parts.list.front(), true};
  }
  return next;
}

}  // namespace deltafin
