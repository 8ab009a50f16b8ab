#include "io/rate_estimate.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/clock.h"

namespace deltafin {
namespace {

constexpr double kKeep = 7.0 / 8;            // of what earlier answers count for, at each answer
constexpr double kPriorSeconds = 8e-3;       // of reading, that a measured rate counts for
constexpr double kUsualSeconds = 1e-3;       // an answer is due in about this: see ChunkBytesFor
constexpr double kTrustSeconds = 10;         // until an idle drive is believed to be as fast as ever, roughly
constexpr double kSlowestSizes = 0.25;       // of the reference: see ForSizes
constexpr uint64_t kEnoughBytes = 64 << 20;  // to know a drive that was never measured
constexpr double kEnoughSeconds = 0.1;
constexpr uint64_t kMinChunk = 64 << 10, kMaxChunk = 2 << 20, kUnknownChunk = 1 << 20;
constexpr uint64_t kMaxWindow = 32 << 20;
constexpr uint64_t kWindowChunks = 8;
constexpr double kWindowSeconds = 32e-3;

}  // namespace

RateEstimate::RateEstimate(double measured) : reference_(std::max(measured, 0.0)), measured_(measured > 0) {
  if (!measured_) return;
  bytes_ = measured * kPriorSeconds;
  seconds_ = kPriorSeconds;
}

void RateEstimate::HandOut(int64_t now_ns, uint64_t bytes_before, uint64_t bytes_after, uint64_t chunk_bytes) {
  if (bytes_before == 0) {
    bytes_ = Current(now_ns) * seconds_;  // what trust came back while it was idle
    busy_since_ns_ = now_ns;
  }
  if (bytes_after >= chunk_bytes && full_since_ns_ < 0) full_since_ns_ = now_ns;
}

void RateEstimate::Answer(int64_t now_ns, uint64_t bytes, uint64_t bytes_after, uint64_t chunk_bytes) {
  if (full_since_ns_ >= 0 && bytes > 0) {
    const double seconds = SecondsBetween(full_since_ns_, now_ns);
    // Several answers at one moment share the time before it.
    if (seconds > 0) {
      bytes_ *= kKeep;
      seconds_ = seconds_ * kKeep + seconds;
    }
    bytes_ += static_cast<double>(bytes);
    seen_bytes_ += bytes;
    seen_seconds_ += seconds;
    const bool enough = seen_bytes_ >= kEnoughBytes || seen_seconds_ >= kEnoughSeconds;
    if (!measured_ && enough && seconds_ > 0) reference_ = std::max(reference_, bytes_ / seconds_);
  }
  busy_since_ns_ = bytes_after > 0 ? now_ns : -1;
  full_since_ns_ = bytes_after >= chunk_bytes ? now_ns : -1;
  idle_since_ns_ = now_ns;
}

double RateEstimate::Current(int64_t now_ns) const {
  if (seconds_ <= 0) return reference_;
  const double rate = bytes_ / seconds_;
  if (busy_since_ns_ >= 0) {
    // As if the answer came now.
    const double usual = std::max(rate * kUsualSeconds, static_cast<double>(kMinChunk));
    return std::min(rate, (bytes_ + usual) / (seconds_ + SecondsBetween(busy_since_ns_, now_ns)));
  }
  if (rate >= reference_) return rate;
  const double doubt = std::exp(-SecondsBetween(idle_since_ns_, now_ns) / kTrustSeconds);
  return doubt * rate + (1 - doubt) * reference_;
}

double RateEstimate::ForSizes(int64_t now_ns) const {
  return reference_ <= 0 ? 0 : std::max(Current(now_ns), reference_ * kSlowestSizes);
}

uint64_t ChunkBytesFor(double bytes_per_second) {
  if (bytes_per_second <= 0) return kUnknownChunk;
  const double wanted = std::min(bytes_per_second * kUsualSeconds, static_cast<double>(kMaxChunk));
  return std::max(std::bit_floor(static_cast<uint64_t>(wanted)), kMinChunk);
}

uint64_t WindowBytesFor(double bytes_per_second, uint64_t chunk_bytes) {
  if (bytes_per_second <= 0) return kMaxWindow;
  const double wanted = std::min(bytes_per_second * kWindowSeconds, static_cast<double>(kMaxWindow));
  return std::min(std::max(kWindowChunks * chunk_bytes, static_cast<uint64_t>(wanted)), kMaxWindow);
}

}  // namespace deltafin
