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
// A prompt that takes longer is announced, or one that reads more where no drive was measured.
constexpr double kLongSeconds = 3;
constexpr uint64_t kLongBytes = 10'000'000'000;
constexpr uint64_t kLongNetworkBytes = 200'000'000;

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

Json DriveFigures(const EngineMonitor::Snapshot& before, const EngineMonitor::Snapshot& now, size_t drive,
                  double seconds) {
  const DriveCounters& c = now.drive_counters[drive];
  const bool is_known = drive < before.drive_counters.size();
  const DriveCounters since = is_known ? c.Since(before.drive_counters[drive]) : c;
  Json out;
  out["name"] = now.drives[drive].name;
  out["bytes"] = c.device_bytes;
  out["share"] =
      now.io.device_bytes > 0 ? static_cast<double>(c.device_bytes) / static_cast<double>(now.io.device_bytes) : 0.0;
  out["bytes_per_second"] = seconds > 0 ? static_cast<double>(since.device_bytes) / seconds : 0.0;
  out["queued_bytes"] = c.queued_bytes;
  out["in_flight_bytes"] = c.in_flight_bytes;
  out["seconds_p50"] = since.latency.Quantile(0.5);
  out["seconds_p99"] = since.latency.Quantile(0.99);
  out["health"] = c.health == DriveHealth::kGood ? "good" : "degraded";
  return out;
}

}  // namespace

bool WorthTelling(const PromptForecast& forecast) {
  if (forecast.network_bytes >= kLongNetworkBytes) return true;
  return forecast.seconds > 0 ? forecast.seconds >= kLongSeconds : forecast.bytes() >= kLongBytes;
}

Json ProgressEvent(const EngineMonitor::Snapshot& before, const EngineMonitor::Snapshot& s, double seconds,
                   int64_t now_ns, double bytes_per_second) {
  Json event;
  event["event"] = "progress";
  event["phase"] = PhaseName(s.phase);
  event["done"] = s.done;
  event["total"] = s.total;
  event["layer"] = s.layer;
  event["layers"] = s.layers;
  event["seconds"] = SecondsBetween(s.phase_start_ns, now_ns);
  if (s.phase == Phase::kPrefill && s.forecast.tokens > 0) {
    event["forecast_bytes"] = s.forecast.bytes();
    event["forecast_network_bytes"] = s.forecast.network_bytes;
    event["forecast_seconds"] = s.forecast.seconds > 0 ? Json(s.forecast.seconds) : Json();
  }
  event["network_bytes"] = s.fetch.bytes;
  event["network_experts"] = s.fetch.experts;
  event["network_experts_waiting"] = s.fetch.waiting;
  event["device_bytes"] = s.io.device_bytes;
  event["bytes_per_second"] = bytes_per_second;
  event["seconds_expert_wait"] = s.cache.wait_seconds;
  event["seconds_dense_wait"] = s.dense_wait_seconds;
  event["drives"] = Json::array();
  for (size_t i = 0; i < s.drive_counters.size(); ++i) event["drives"].push_back(DriveFigures(before, s, i, seconds));
  return event;
}

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
  if (s.fetch.waiting > 0)
    part(Cat("fetching experts: ", s.fetch.waiting, " to come, ", FormatBytes(s.fetch.bytes), " came at ",
             FormatRate(s.fetch.seconds > 0 ? static_cast<double>(s.fetch.bytes) / s.fetch.seconds : 0)));
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
  EngineMonitor::Snapshot last;
  int64_t last_ns = clock.NowNs();
  double rate = 0;
  int64_t told_ns = 0;  // start of the phase whose forecast was told
  std::unique_lock lock(mutex_);
  while (!wake_.wait_for(lock, period, [this] { return stop_; })) {
    const EngineMonitor::Snapshot s = monitor_.Sample();
    const int64_t now = clock.NowNs();
    const double seconds = SecondsBetween(last_ns, now);
    // A moving average over about two samples.
    const uint64_t bytes = std::max(s.io.device_bytes, last.io.device_bytes);
    rate = (rate + static_cast<double>(bytes - last.io.device_bytes) / seconds) / 2;
    if (mode_ == Mode::kText && s.phase == Phase::kPrefill && s.phase_start_ns != told_ns && WorthTelling(s.forecast)) {
      told_ns = s.phase_start_ns;
      terminal_.ClearStatus();
      terminal_.WriteNote(Describe(s.forecast) + "\n");
    }
    if (s.phase == Phase::kIdle) {
      terminal_.ClearStatus();
    } else if (mode_ == Mode::kJson) {
      terminal_.Write(DumpJson(ProgressEvent(last, s, seconds, now, rate)) + "\n");
    } else {
      terminal_.ShowStatus(StatusText(s, now, rate));
    }
    last = s;
    last_ns = now;
  }
}

}  // namespace deltafin
