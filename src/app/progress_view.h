// ProgressView: shows on stderr what the engine is doing: phase, layer, bytes read, GB/s, tokens/s, an estimate.
//
// A thread of its own samples the monitor, so that something moves even while one layer waits for a drive: twice a
// second on a terminal, a line every ten seconds elsewhere. With `json`, "progress" events on stdout instead. Stops
// when it dies. Thread rule: thread-compatible.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "app/terminal.h"
#include "base/json.h"
#include "engine/monitor.h"

namespace deltafin {

class ProgressView {
 public:
  enum class Mode : uint8_t { kText, kJson };

  ProgressView(const EngineMonitor& monitor, Terminal& terminal, Mode mode);
  ~ProgressView();

 private:
  void Loop();

  const EngineMonitor& monitor_;
  Terminal& terminal_;
  Mode mode_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stop_ = false;
  std::thread thread_;
};

// Whether a prompt takes so long that people should be told before.
bool WorthTelling(const PromptForecast& forecast);

// The event of `run --json`. Rates and latencies of drives are those since `before`, taken `seconds` earlier; the
// event's own bytes_per_second is given. For tests too.
Json ProgressEvent(const EngineMonitor::Snapshot& before, const EngineMonitor::Snapshot& now, double seconds,
                   int64_t now_ns, double bytes_per_second);

// One status text, e.g. "prompt 512/4000  layer 17/93  2.71 GB/s  18 tok/s  3 min left". Empty when idle. For tests
// too.
std::string StatusText(const EngineMonitor::Snapshot& now, int64_t now_ns, double bytes_per_second);

}  // namespace deltafin
