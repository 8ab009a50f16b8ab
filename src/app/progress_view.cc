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

// What is done of the phase, in its own units; a step in progress counts by its layers, so that an estimate exists
// before the first step is through.
double Done(const EngineMonitor::Snapshot& s) {
  double done = static_cast<double>(s.done);
  if ((s.phase == Phase::kPrefill || s.phase == Phase::kDecode) && s.layers > 0)
    done += static_cast<double>(s.step_rows) * s.layer / s.layers;
  return done;
}

// "3 min 12 s left", or for an answer without a known end how long its next token takes. "" when nothing is known yet.
std::string TimeLeft(const EngineMonitor::Snapshot& s, double seconds) {
  const bool is_decode = s.phase == Phase::kDecode;
  // The first new token came from the prompt's pass, at the very start of the phase.
  const double done = Done(s) - (is_decode && s.done > 0 ? 1 : 0);
  if (seconds < 1 || done <= 0) return "";
  if (s.total == 0) {
    const double next = (static_cast<double>(s.done) - done) * seconds / done;
    return is_decode && next >= 1 ? FormatSeconds(next) + " to the next" : "";
  }
  const double total = static_cast<double>(s.total) - (is_decode ? 1 : 0);
  return done < total ? FormatSeconds(seconds * (total - done) / done) + " left" : "";
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
  if (s.phase != Phase::kOpen || s.total != 0) {
    const std::string done = is_load ? FormatBytes(s.done) : std::to_string(s.done);
    const std::string total = is_load ? FormatBytes(s.total) : std::to_string(s.total);
    part(s.total == 0 ? done : done + "/" + total);
  }
  if (s.phase == Phase::kPrefill || s.phase == Phase::kDecode)
    part("layer " + std::to_string(s.layer + 1) + "/" + std::to_string(s.layers));
  if (s.phase == Phase::kOpen) return text + (s.total == 0 ? "" : " files");
  if (!is_load) part(FormatBytes(s.io.device_bytes) + " read");
  part(FormatRate(bytes_per_second));
  const double tokens = static_cast<double>(s.done) - (s.phase == Phase::kDecode ? 1 : 0);
  if (!is_load && s.phase != Phase::kOpen && tokens > 0 && seconds > 0) part(Count(tokens / seconds) + " tok/s");
  const std::string left = TimeLeft(s, seconds);
  if (!left.empty()) part(left);
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
