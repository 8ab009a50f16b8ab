#include "bench/machine_limits.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <vector>

#include "backend/cpu/limit_loops.h"
#include "bench/median.h"

namespace deltafin {
namespace {

constexpr int64_t kMultiplySteps = 1'000'000;
constexpr int64_t kPartNs = 10'000;
constexpr int kLoopsAwake = 501, kLoopsAsleep = 51;
constexpr auto kFallAsleep = std::chrono::milliseconds(1);  // much longer than workers look

}  // namespace

Result<std::unique_ptr<MachineLimits>> MachineLimits::Create(const std::string& isa, const ThreadPlacement& placement,
                                                             bool pin) {
  DFIN_TRY(const cpu::Isa chosen, cpu::SelectIsa(isa));
  DFIN_TRY(AlignedBuffer memory, AlignedBuffer::Create(kReadBytes));
  std::memset(memory.data(), 1, memory.size());
  std::unique_ptr<MachineLimits> limits(new MachineLimits(chosen, std::move(memory), placement.threads));
  // An engine warns of a system that refuses; here it changes nothing.
  if (pin && !placement.cpus.empty()) (void)limits->pool_.PinWorkers(placement.cpus);
  return limits;
}

double MachineLimits::ReadBytesPerSecond(double seconds) {
  const int64_t start = clock_.NowNs();
  double bytes = 0, spent = 0;
  do {
    pool_.ParallelFor(static_cast<int64_t>(memory_.size()), 4096, [&](int64_t begin, int64_t end, int) {
      sink_ += cpu::ReadMemory(isa_, Bytes(memory_.data() + begin, static_cast<size_t>(end - begin)));
    });
    bytes += static_cast<double>(memory_.size());
    spent = SecondsBetween(start, clock_.NowNs());
  } while (spent < seconds);
  return bytes / spent;
}

double MachineLimits::FlopsPerSecond(double seconds) {
  const int64_t start = clock_.NowNs();
  double spent = 0;
  std::atomic<int64_t> made{0};
  do {
    pool_.ParallelFor(pool_.threads(), 1,
                      [&](int64_t, int64_t, int) { made += cpu::MultiplyAdds(isa_, kMultiplySteps); });
    spent = SecondsBetween(start, clock_.NowNs());
  } while (spent < seconds);
  return 2 * static_cast<double>(made) / spent;
}

double MachineLimits::LoopSeconds() {
  const int64_t start = clock_.NowNs();
  pool_.ParallelFor(pool_.threads(), 1, [&](int64_t, int64_t, int) {
    const int64_t end = clock_.NowNs() + kPartNs;
    while (clock_.NowNs() < end) {
    }
  });
  return SecondsBetween(start, clock_.NowNs()) - static_cast<double>(kPartNs) * 1e-9;
}

double MachineLimits::ForkJoinSeconds() {
  std::vector<double> seconds;
  for (int loop = 0; loop < kLoopsAwake; ++loop) seconds.push_back(LoopSeconds());
  return Median(std::move(seconds));
}

double MachineLimits::ForkJoinAsleepSeconds() {
  std::vector<double> seconds;
  for (int loop = 0; loop < kLoopsAsleep; ++loop) {
    std::this_thread::sleep_for(kFallAsleep);
    seconds.push_back(LoopSeconds());
  }
  return Median(std::move(seconds));
}

}  // namespace deltafin
