// EngineMonitor: what an engine is doing right now, for a progress display on another thread.
//
// The engine writes, anybody reads; a snapshot is a set of independent figures, each correct by itself. Made before the
// engine, so that loading is visible, and outlives it. Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <vector>

#include "cache/expert_cache.h"
#include "checkpoint/streamed_experts.h"
#include "engine/forecast.h"
#include "io/io_scheduler.h"

namespace deltafin {

enum class Phase : uint8_t { kIdle, kOpen, kLoad, kPrefill, kDecode };

class EngineMonitor {
 public:
  struct Snapshot {
    Phase phase = Phase::kIdle;
    uint64_t done = 0, total = 0;  // load: bytes; prefill: prompt tokens; decode: new tokens and their limit (0 = none)
    uint64_t step_rows = 0;        // tokens of the step in progress
    int32_t layer = 0, layers = 0;  // of the step in progress
    int64_t phase_start_ns = 0;     // steady clock
    IoCounters io;
    std::vector<DriveInfo> drives;
    std::vector<DriveCounters> drive_counters;  // one a drive
    ExpertCacheCounters cache;
    FetchCounters fetch;              // experts that come over the network
    int64_t slots = 0, resident = 0;  // of the expert cache
    double dense_wait_seconds = 0;
    PromptForecast forecast;  // of the prompt that is being read; tokens == 0: none yet
  };

  void Enter(Phase phase, uint64_t total, int64_t now_ns) {
    SetForecast({});
    done_ = 0;
    total_ = total;
    step_rows_ = 0;
    layer_ = 0;
    phase_start_ns_ = now_ns;
    phase_ = phase;
  }
  void SetDone(uint64_t done) { done_ = done; }
  void SetTotal(uint64_t total) { total_ = total; }
  void SetStepRows(uint64_t rows) {
    layer_ = 0;
    step_rows_ = rows;
  }
  void SetLayers(int32_t layers) { layers_ = layers; }
  void SetLayer(int32_t layer) { layer_ = layer; }
  void SetForecast(const PromptForecast& forecast) {
    const std::lock_guard lock(mutex_);
    forecast_ = forecast;
  }
  void SetDenseWait(double seconds) { dense_wait_seconds_ = seconds; }
  // Whose counters a snapshot shows; null before they die.
  void SetSources(const IoScheduler* io, const ExpertCache* cache, const StreamedExperts* streamed = nullptr) {
    const std::lock_guard lock(mutex_);
    streamed_ = streamed;
    io_ = io;
    cache_ = cache;
  }

  Snapshot Sample() const {
    Snapshot s;
    s.phase = phase_;
    s.done = done_;
    s.total = total_;
    s.step_rows = step_rows_;
    s.layer = layer_;
    s.layers = layers_;
    s.phase_start_ns = phase_start_ns_;
    s.dense_wait_seconds = dense_wait_seconds_;
    const std::lock_guard lock(mutex_);
    s.forecast = forecast_;
    if (io_ != nullptr) {
      s.io = io_->counters();
      s.drives = io_->drives();
      s.drive_counters = io_->drive_counters();
    }
    if (streamed_ != nullptr) s.fetch = streamed_->counters();
    if (cache_ != nullptr) {
      s.cache = cache_->counters();
      s.slots = cache_->slots();
      s.resident = cache_->resident();
    }
    return s;
  }

 private:
  std::atomic<Phase> phase_{Phase::kIdle};
  std::atomic<uint64_t> done_{0}, total_{0}, step_rows_{0};
  std::atomic<int32_t> layer_{0}, layers_{0};
  std::atomic<int64_t> phase_start_ns_{0};
  std::atomic<double> dense_wait_seconds_{0};
  mutable std::mutex mutex_;
  const IoScheduler* io_ = nullptr;
  const ExpertCache* cache_ = nullptr;
  const StreamedExperts* streamed_ = nullptr;
  PromptForecast forecast_;
};

}  // namespace deltafin
