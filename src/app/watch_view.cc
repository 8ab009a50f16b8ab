#include "app/watch_view.h"

#include <algorithm>
#include <deque>

namespace deltafin {
namespace {

constexpr auto kPeriod = std::chrono::milliseconds(500);
constexpr size_t kWindow = 4;  // samples that rates are taken over

}  // namespace

WatchView::WatchView(const EngineMonitor& monitor, Terminal& terminal)
    : monitor_(monitor), terminal_(terminal), thread_([this] { Loop(); }) {}

WatchView::~WatchView() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  thread_.join();
  terminal_.ClosePanel();
}

void WatchView::Loop() {
  const SteadyClock clock;
  std::deque<WatchSample> samples = {{monitor_.Sample(), clock.NowNs()}};
  std::unique_lock lock(mutex_);
  while (!wake_.wait_for(lock, kPeriod, [this] { return stop_; })) {
    samples.push_back({monitor_.Sample(), clock.NowNs()});
    if (samples.size() > kWindow) samples.pop_front();
    // The last column stays free: a full line would wrap on some terminals.
    terminal_.ShowPanel(WatchPanel(samples.front(), samples.back(), std::max(Terminal::Width() - 1, 20)));
  }
}

}  // namespace deltafin
