// MachineLimits: what this processor could do at best, measured when asked: reading memory, multiplying and adding, and
// starting and joining its threads.
//
// Owns a pool of threads placed like an engine's, and the memory that is read: kReadBytes of huge pages, all touched
// when it is made (so a memory plan made later counts them), far more than caches hold on most machines. Thread rule:
// one thread at a time. Errors: those of SelectIsa; kOutOfMemory.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "backend/cpu/cpu_isa.h"
#include "base/aligned_buffer.h"
#include "base/clock.h"
#include "base/result.h"
#include "base/thread_pool.h"
#include "base/topology.h"

namespace deltafin {

class MachineLimits {
 public:
  static constexpr uint64_t kReadBytes = uint64_t{256} << 20;

  // Cores are taken only if `pin`; `placement.cpus` may be empty.
  static Result<std::unique_ptr<MachineLimits>> Create(const std::string& isa, const ThreadPlacement& placement,
                                                       bool pin);

  // Each takes about so many seconds.
  double ReadBytesPerSecond(double seconds);
  double FlopsPerSecond(double seconds);

  // What a parallel loop costs beyond its work (10 microseconds a part), with workers that are still looking, and that
  // have fallen asleep. Medians.
  double ForkJoinSeconds();
  double ForkJoinAsleepSeconds();

 private:
  MachineLimits(cpu::Isa isa, AlignedBuffer memory, int threads)
      : isa_(isa), memory_(std::move(memory)), pool_(threads) {}
  double LoopSeconds();

  const cpu::Isa isa_;
  const AlignedBuffer memory_;
  const SteadyClock clock_;
  ThreadPool pool_;
  std::atomic<uint64_t> sink_{0};  // so that results are needed
};

}  // namespace deltafin
