// watch_panel: the lines of `run --watch`: what the engine is doing, how each drive is doing, where the time goes.
//
// A pure function of two snapshots of the monitor, so that a test can read it. Rates are over the time between the two;
// sums since the start are from the later one alone.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/monitor.h"

namespace deltafin {

struct WatchSample {
  EngineMonitor::Snapshot snapshot;
  int64_t at_ns = 0;  // steady clock
};

// Lines of at most `width` columns: a rule, one of progress, one of time, one a drive and, with several, their sum.
std::vector<std::string> WatchPanel(const WatchSample& before, const WatchSample& now, int width);

// Lines that WatchPanel gives for so many drives in 140 columns or more; it is one more in fewer.
int WatchPanelRows(size_t drives);

}  // namespace deltafin
