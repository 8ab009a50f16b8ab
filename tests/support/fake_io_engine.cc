#include "support/fake_io_engine.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <limits>

#include "base/clock.h"
#include "io/read_progress.h"

namespace deltafin::test {
namespace {

uint64_t Widened(const ReadRequest& request) {
  return WidenedBytes(request.offset, request.bytes, request.file->alignment());
}

}  // namespace

FakeIoEngine::FakeIoEngine(const FakeIoOptions& options) : options_(options), random_(options.seed) {}

void FakeIoEngine::SetContents(const DirectFile* file, std::vector<std::byte> contents) {
  const std::lock_guard lock(mutex_);
  contents_[file] = std::move(contents);
}

void FakeIoEngine::SetFault(std::function<Status(const ReadRequest&)> fault) {
  const std::lock_guard lock(mutex_);
  fault_ = std::move(fault);
}

void FakeIoEngine::SetFaults(std::function<FakeFault(const ReadRequest&)> faults) {
  const std::lock_guard lock(mutex_);
  faults_ = std::move(faults);
}

void FakeIoEngine::ReleaseHung() {
  const std::lock_guard lock(mutex_);
  for (Pending& read : pending_) read.fault.hangs = false;
  changed_.notify_all();
}

size_t FakeIoEngine::hung() const {
  const std::lock_guard lock(mutex_);
  return static_cast<size_t>(
      std::count_if(pending_.begin(), pending_.end(), [](const Pending& read) { return read.fault.hangs; }));
}

void FakeIoEngine::Hold() {
  const std::lock_guard lock(mutex_);
  held_ = true;
}

void FakeIoEngine::Release() {
  const std::lock_guard lock(mutex_);
  held_ = false;
  changed_.notify_all();
}

std::vector<ReadRequest> FakeIoEngine::submitted() const {
  const std::lock_guard lock(mutex_);
  return submitted_;
}

uint64_t FakeIoEngine::most_bytes_in_flight() const {
  const std::lock_guard lock(mutex_);
  return most_bytes_in_flight_;
}

void FakeIoEngine::WaitUntilSubmitted(size_t reads) const {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return submitted_.size() >= reads; });
}

void FakeIoEngine::Submit(uint64_t id, const ReadRequest& request) {
  const std::lock_guard lock(mutex_);
  DFIN_CHECK(static_cast<int>(pending_.size()) < options_.depth, "more reads submitted than the engine's depth");
  const auto delay_us = static_cast<int64_t>(random_() % static_cast<uint64_t>(options_.max_delay_us + 1));
  FakeFault fault = faults_ ? faults_(request) : FakeFault{};
  pending_.push_back({id, request, SteadyClock().NowNs() + (delay_us + fault.delay_us) * 1000, std::move(fault)});
  submitted_.push_back(request);
  bytes_in_flight_ += Widened(request);
  most_bytes_in_flight_ = std::max(most_bytes_in_flight_, bytes_in_flight_);
  changed_.notify_all();
}

size_t FakeIoEngine::Wait(std::span<IoCompletion> out, int64_t timeout_ns) {
  std::unique_lock lock(mutex_);
  const int64_t give_up_ns = timeout_ns < 0 ? std::numeric_limits<int64_t>::max() : SteadyClock().NowNs() + timeout_ns;
  for (;;) {
    size_t count = 0;
    std::shuffle(pending_.begin(), pending_.end(), random_);
    const int64_t now = SteadyClock().NowNs();
    int64_t next_due = std::min(give_up_ns, now + 1'000'000'000);
    for (size_t i = 0; i < pending_.size() && !held_ && count < out.size();) {
      if (pending_[i].fault.hangs) {
        ++i;
        continue;
      }
      if (pending_[i].due_ns > now) {
        next_due = std::min(next_due, pending_[i].due_ns);
        ++i;
        continue;
      }
      out[count++] = Complete(pending_[i]);
      pending_.erase(pending_.begin() + static_cast<std::ptrdiff_t>(i));
    }
    if (count > 0 || std::exchange(woken_, false) || now >= give_up_ns) return count;
    changed_.wait_for(lock, std::chrono::nanoseconds(next_due - now));
  }
}

void FakeIoEngine::Wake() {
  const std::lock_guard lock(mutex_);
  woken_ = true;
  changed_.notify_all();
}

IoCompletion FakeIoEngine::Complete(Pending& read) {
  IoCompletion completion;
  completion.id = read.id;
  std::byte* wanted = read.request.destination + read.request.offset % read.request.file->alignment();
  if (!read.fault.status) {
    if (const uint64_t some = std::min(read.fault.delivered_bytes, read.request.bytes); some > 0) {
      ReadRequest part = read.request;
      part.bytes = some;
      [[maybe_unused]] const Status transferred = Transfer(part, &completion.bytes_read);
    }
    completion.status = std::move(read.fault.status);
    bytes_in_flight_ -= Widened(read.request);
    return completion;
  }
  if (fault_) completion.status = fault_(read.request);
  const double dice = static_cast<double>(random_() >> 11) * 0x1.0p-53;
  if (completion.status && dice < options_.eio_probability)
    completion.status = Fail(ErrorCode::kIo, "reading ", read.request.file->path(), ": ", std::strerror(EIO));
  if (completion.status) completion.status = Transfer(read.request, &completion.bytes_read);
  if (completion.status && read.fault.flipped_byte >= 0) wanted[read.fault.flipped_byte] ^= std::byte{0x10};
  bytes_in_flight_ -= Widened(read.request);
  return completion;
}

Status FakeIoEngine::Transfer(const ReadRequest& request, uint64_t* bytes_read) {
  const auto found = contents_.find(request.file);
  ReadProgress progress(request);
  int64_t result = 0;
  do {
    const uint64_t end = found == contents_.end() ? options_.file_ends_at
                                                  : std::min<uint64_t>(options_.file_ends_at, found->second.size());
    const uint64_t left = end > progress.offset() ? end - progress.offset() : 0;
    const uint64_t bytes = std::min(progress.bytes(), left);
    if (bytes == 0) {
      result = 0;
    } else if (found != contents_.end()) {
      std::memcpy(progress.destination(), found->second.data() + progress.offset(), bytes);
      result = static_cast<int64_t>(bytes);
    } else {
      // The descriptor may be a direct one: whole blocks are read, and only as much is reported as "exists".
      result =
          pread(request.file->fd(), progress.destination(), progress.bytes(), static_cast<off_t>(progress.offset()));
      result = result < 0 ? -errno : std::min(result, static_cast<int64_t>(bytes));
    }
  } while (!progress.Advance(result));
  *bytes_read = progress.bytes_read();
  return progress.TakeStatus();
}

}  // namespace deltafin::test
