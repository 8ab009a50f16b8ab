// WatchView: `run --watch`: the panel of watch_panel.h at the bottom of the terminal, twice a second.
//
// A thread of its own samples the monitor. Stops, and gives the rows back, when it dies. Thread rule:
// thread-compatible.
#pragma once

#include <condition_variable>
#include <mutex>
#include <thread>

#include "app/terminal.h"
#include "app/watch_panel.h"

namespace deltafin {

class WatchView {
 public:
  WatchView(const EngineMonitor& monitor, Terminal& terminal);
  ~WatchView();

 private:
  void Loop();

  const EngineMonitor& monitor_;
  Terminal& terminal_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace deltafin
