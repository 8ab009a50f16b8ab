#include "app/progress_view.h"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/json.h"
#include "base/units.h"

namespace deltafin {
namespace {

constexpr auto kTerminalPeriod = std::chrono::milliseconds(500);
constexpr auto kLinePeriod = std::chrono::seconds(10);

const char* PhaseName(Phase phase) {
  switch (phase) {
    case Phase::kIdle:
      return "idle";
    case Phase::kOpen:
      return "opening";
    case Phase::kLoad:
      return "loading";
    case Phase::kPrefill:
      return "prompt";
    case Phase::kDecode:
      return "answer";
  }
  return "";
}

std::string Count(double value) {
  char text[32];
  std::snprintf(text, sizeof text, value < 10 ? "%.2f" : "%.0f", value);
  return text;
}

Json ProgressEvent(const EngineMonitor::Snapshot& s, int64_t now_ns, double bytes_per_second) {
  Json event;
  event["event"] = "progress";
  event["phase"] = PhaseName(s.phase);
  event["done"] = s.done;
  event["total"] = s.total;
  event["layer"] = s.layer;
  event["layers"] = s.layers;
  event["seconds"] = SecondsBetween(s.phase_start_ns, now_ns);
  event["device_bytes"] = s.io.device_bytes;
  event["bytes_per_second"] = bytes_per_second;
  return event;
}

}  // namespace

std::string StatusText(const EngineMonitor::Snapshot& s, int64_t now_ns, double bytes_per_second) {
  if (s.phase == Phase::kIdle) return "";
  const double seconds = SecondsBetween(s.phase_start_ns, now_ns);
  std::string text = PhaseName(s.phase);
  const auto part = [&](const std::string& more) { text += "  " + more; };
  const bool is_load = s.phase == Phase::kLoad;
  if (s.phase != Phase::kOpen) {
    const std::string done = is_load ? FormatBytes(s.done) : std::to_string(s.done);
    const std::string total = is_load ? FormatBytes(s.total) : std::to_string(s.total);
    part(s.total == 0 ? done : done + "/" + total);
  }
  if (s.phase == Phase::kPrefill || s.phase == Phase::kDecode)
    part("layer " + std::to_string(s.layer + 1) + "/" + std::to_string(s.layers));
  if (!is_load) part(FormatBytes(s.io.device_bytes) + " read");
  part(FormatRate(bytes_per_second));
  if (!is_load && s.phase != Phase::kOpen && s.done > 0 && seconds > 0)
    part(Count(static_cast<double>(s.done) / seconds) + " tok/s");
  if (s.phase != Phase::kOpen && s.total > 0 && seconds > 1) {
    // A chunk in progress counts by its layers, so that the estimate exists before the first chunk is through.
    double share = static_cast<double>(s.done) / static_cast<double>(s.total);
    if (s.phase == Phase::kPrefill && s.done == 0 && s.layers > 0)
      share = static_cast<double>(s.layer) / static_cast<double>(s.layers) *
              std::min(1.0, 512.0 / static_cast<double>(s.total));
    if (share > 0 && share < 1) part(FormatSeconds(seconds / share - seconds) + " left");
  }
  return text;
}

ProgressView::ProgressView(const EngineMonitor& monitor, Terminal& terminal, Mode mode)
    : monitor_(monitor), terminal_(terminal), mode_(mode), thread_([this] { Loop(); }) {}

ProgressView::~ProgressView() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  thread_.join();
  terminal_.ClearStatus();
}

void ProgressView::Loop() {
  const SteadyClock clock;
  const bool often = mode_ == Mode::kText && terminal_.stderr_is_terminal();
  const auto period = often ? std::chrono::duration_cast<std::chrono::milliseconds>(kTerminalPeriod)
                            : std::chrono::duration_cast<std::chrono::milliseconds>(kLinePeriod);
  uint64_t last_bytes = 0;
  int64_t last_ns = clock.NowNs();
  double rate = 0;
  std::unique_lock lock(mutex_);
  while (!wake_.wait_for(lock, period, [this] { return stop_; })) {
    const EngineMonitor::Snapshot s = monitor_.Sample();
    const int64_t now = clock.NowNs();
    // A moving average over about two samples.
    const uint64_t bytes = std::max(s.io.device_bytes, last_bytes);
    rate = (rate + static_cast<double>(bytes - last_bytes) / SecondsBetween(last_ns, now)) / 2;
    last_bytes = bytes;
    last_ns = now;
    if (s.phase == Phase::kIdle) {
      terminal_.ClearStatus();
    } else if (mode_ == Mode::kJson) {
      terminal_.Write(DumpJson(ProgressEvent(s, now, rate)) + "\n");
    } else {
      terminal_.ShowStatus(StatusText(s, now, rate));
    }
  }
}

}  // namespace deltafin
