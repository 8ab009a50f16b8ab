#include "support/paced_engine.h"

#include <algorithm>
#include <limits>

namespace deltafin::test {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr double kAtOnce = 1e-12;  // seconds that count as none

}  // namespace

PacedEngine::PacedEngine(VirtualClock* clock, std::vector<PacedDrive> drives, int depth)
    : clock_(clock), start_ns_(clock->NowNs()), depth_(depth) {
  for (const PacedDrive& drive : drives) drives_.push_back({drive, {}, {}, 0});
}

void PacedEngine::SetRateAt(double seconds, int32_t drive, double bytes_per_second) {
  changes_.push_back({seconds, drive, bytes_per_second});
}

void PacedEngine::Submit(uint64_t id, const ReadRequest& request) {
  DFIN_CHECK(in_flight_ < depth_, "more reads submitted than the engine's depth");
  ++in_flight_;
  Drive& drive = drives_[static_cast<size_t>(drive_of_.at(request.file))];
  const uint64_t bytes = WidenedBytes(request.offset, request.bytes, request.file->alignment());
  drive.queue.push_back(
      {id, request, static_cast<double>(bytes), static_cast<double>(drive.options.latency_ns) * 1e-9});
}

double PacedEngine::SecondsToNextEvent() const {
  double next = kNever;
  if (in_flight_ == 0) return next;  // time stands still until somebody reads
  for (const Change& change : changes_)
    if (change.at > elapsed_) next = std::min(next, change.at - elapsed_);
  for (const Drive& drive : drives_) {
    const double rate = drive.options.bytes_per_second;
    if (!drive.queue.empty() && rate > 0) next = std::min(next, drive.queue.front().left / rate);
    for (const Read& read : drive.late) next = std::min(next, read.latency_s);
  }
  return next;
}

void PacedEngine::Advance(double seconds) {
  for (Drive& drive : drives_) {
    for (Read& read : drive.late) read.latency_s -= seconds;
    if (drive.queue.empty()) continue;
    Read& first = drive.queue.front();
    first.left -= seconds * drive.options.bytes_per_second;
    if (first.left > drive.options.bytes_per_second * kAtOnce + 1e-6) continue;
    drive.late.push_back(first);
    drive.queue.pop_front();
  }
  elapsed_ += seconds;
  for (Change& change : changes_) {
    if (change.at > elapsed_ + kAtOnce) continue;
    drives_[static_cast<size_t>(change.drive)].options.bytes_per_second = change.rate;
    change.at = -1;
  }
  std::erase_if(changes_, [](const Change& change) { return change.at < 0; });
  for (Drive& drive : drives_) {
    for (const Read& read : drive.late) {
      if (read.latency_s > kAtOnce) continue;
      const uint64_t bytes = WidenedBytes(read.request.offset, read.request.bytes, read.request.file->alignment());
      Status status = fault_ ? fault_(read.request) : Status();
      if (status) drive.served += bytes;
      done_.push_back({read.id, std::move(status), bytes});
      --in_flight_;
    }
    std::erase_if(drive.late, [](const Read& read) { return read.latency_s <= kAtOnce; });
  }
  clock_->Set(start_ns_ + static_cast<int64_t>(elapsed_ * 1e9));
}

size_t PacedEngine::Wait(std::span<IoCompletion> out, int64_t timeout_ns) {
  const double give_up = timeout_ns < 0 ? kNever : elapsed_ + static_cast<double>(timeout_ns) * 1e-9;
  while (done_.empty() && elapsed_ + kAtOnce < give_up) {
    std::unique_lock lock(mutex_);
    if (std::exchange(woken_, false)) return 0;
    const double next = std::min(SecondsToNextEvent(), give_up - elapsed_);
    if (next == kNever) {
      changed_.wait(lock, [this] { return woken_; });
      continue;
    }
    lock.unlock();
    Advance(next);
  }
  const size_t count = std::min(out.size(), done_.size());
  std::move(done_.begin(), done_.begin() + static_cast<std::ptrdiff_t>(count), out.begin());
  done_.erase(done_.begin(), done_.begin() + static_cast<std::ptrdiff_t>(count));
  return count;
}

void PacedEngine::Wake() {
  const std::lock_guard lock(mutex_);
  woken_ = true;
  changed_.notify_all();
}

}  // namespace deltafin::test
