#include "app/watch_panel.h"

#include <algorithm>
#include <cstdio>

#include "app/progress_view.h"
#include "app/wrapped_text.h"
#include "base/units.h"

namespace deltafin {
namespace {

constexpr int kBarWidth = 20;
constexpr int kShortBar = 10;
constexpr int kNarrow = 60;              // columns
constexpr int kOneLineOfCounters = 140;  // columns

uint64_t Since(uint64_t before, uint64_t now) { return now > before ? now - before : 0; }

std::string Bar(double share, int width) {
  const int full = static_cast<int>(std::clamp(share, 0.0, 1.0) * width + 0.5);
  std::string bar(static_cast<size_t>(full), '#');
  return bar.append(static_cast<size_t>(width - full), '.');
}

std::string Percent(double share) {
  char text[16];
  std::snprintf(text, sizeof text, "%3.0f %%", share * 100);
  return text;
}

// "1.2 ms"; "-" when nothing was read.
std::string Latency(double seconds) {
  if (seconds <= 0) return "-";
  char text[32];
  if (seconds < 1e-3)
    std::snprintf(text, sizeof text, "%.0f us", seconds * 1e6);
  else if (seconds < 1)
    std::snprintf(text, sizeof text, seconds < 10e-3 ? "%.1f ms" : "%.0f ms", seconds * 1e3);
  else
    std::snprintf(text, sizeof text, "%.1f s", seconds);
  return text;
}

std::string Column(const std::string& text, int width, bool right = true) {
  const auto length = static_cast<int>(text.size());
  if (length > width) return Cat("~", std::string_view(text).substr(text.size() - static_cast<size_t>(width - 1)));
  const std::string space(static_cast<size_t>(width - length), ' ');
  return right ? Cat(space, text) : Cat(text, space);
}

struct DriveRow {
  std::string name;
  double bar = -1;  // share of it that is full; -1: none
  std::string rate, of_best, share, queue, p50, p99, note;
};

// The columns that there is room for; the least telling ones go first.
struct Columns {
  int name = 16, bar = kBarWidth;
  bool of_best = true, share = true, queue = true, p50 = true, p99 = true;

  int width() const {
    return name + (bar > 0 ? bar + 1 : 0) + 10 + (of_best ? 7 : 0) + (share ? 7 : 0) + (queue ? 9 : 0) + (p50 ? 8 : 0) +
           (p99 ? 8 : 0);
  }

  static Columns For(int width, int name_width, int note_width) {
    Columns columns{.name = name_width};
    const int room = width - note_width;
    if (columns.width() > room) columns.bar = kShortBar;
    if (columns.width() > room) columns.share = false;
    if (columns.width() > room) columns.p50 = false;
    if (columns.width() > room) columns.bar = 0;
    if (columns.width() > room) columns.queue = false;
    if (columns.width() > room) columns.of_best = false;
    if (columns.width() > room) columns.p99 = false;
    return columns;
  }
};

std::string Join(const DriveRow& row, const Columns& columns) {
  std::string line = Column(row.name, columns.name, false);
  const auto add = [&line](bool shown, const std::string& text) {
    if (shown) line.append(1, ' ').append(text);
  };
  const auto width = static_cast<size_t>(columns.bar);
  add(columns.bar > 0, row.bar < 0 ? std::string(width, ' ') : Bar(row.bar, columns.bar));
  add(true, Column(row.rate, 9));
  add(columns.of_best, Column(row.of_best, 6));
  add(columns.share, Column(row.share, 6));
  add(columns.queue, Column(row.queue, 8));
  add(columns.p50, Column(row.p50, 7));
  add(columns.p99, Column(row.p99, 7));
  add(true, row.note);
  return line;
}

std::string DriveNote(const DriveCounters& counters) {
  std::string note;
  if (counters.health == DriveHealth::kDegraded) note = "degraded";
  if (counters.errors != 0)
    note.append(note.empty() ? "" : ", ").append(std::to_string(counters.errors)).append(" errors");
  if (counters.hung != 0) note.append(note.empty() ? "" : ", ").append(std::to_string(counters.hung)).append(" hung");
  return note;
}

std::vector<DriveRow> DriveRows(const WatchSample& before, const WatchSample& now, double seconds) {
  const auto& then = before.snapshot.drive_counters;
  const auto& counters = now.snapshot.drive_counters;
  const auto delta = [&](size_t i) {
    return static_cast<double>(Since(i < then.size() ? then[i].device_bytes : 0, counters[i].device_bytes));
  };
  double bytes = 0, best = 0, total = 0;
  for (size_t i = 0; i < counters.size(); ++i) {
    bytes += delta(i);
    best += now.snapshot.drives[i].bytes_per_second;
    total += static_cast<double>(counters[i].device_bytes);
  }
  std::vector<DriveRow> rows;
  for (size_t i = 0; i < counters.size(); ++i) {
    const DriveCounters& c = counters[i];
    const LatencyHistogram recent = i < then.size() ? c.latency.Since(then[i].latency) : c.latency;
    const double rate = delta(i) / seconds;
    const double limit = now.snapshot.drives[i].bytes_per_second;
    DriveRow row;
    row.name = now.snapshot.drives[i].name;
    row.rate = FormatRate(rate);
    row.of_best = limit > 0 ? Percent(rate / limit) : "";
    row.share = total > 0 ? Percent(static_cast<double>(c.device_bytes) / total) : "";
    row.queue = FormatBytes(c.queued_bytes + c.in_flight_bytes);
    row.p50 = Latency(recent.Quantile(0.5));
    row.p99 = Latency(recent.Quantile(0.99));
    row.note = DriveNote(c);
    // Without a measured limit the bar shows the drive's part of what all deliver.
    row.bar = limit > 0 ? rate / limit : bytes > 0 ? delta(i) / bytes : 0;
    rows.push_back(std::move(row));
  }
  if (counters.size() > 1) {
    DriveRow row;
    row.name = "all drives";
    row.rate = FormatRate(bytes / seconds);
    row.of_best = best > 0 ? Percent(bytes / seconds / best) : "";
    row.queue = FormatBytes(static_cast<uint64_t>(total));
    row.note = "read in all";
    rows.push_back(std::move(row));
  }
  return rows;
}

// As many words as fit.
std::string CutAtWord(const std::string& text, size_t width) { return text.substr(0, Wrapped(text, width).find('\n')); }

// Where the time of the steps went: waiting for experts, waiting for dense weights, computing.
std::string TimeLine(const WatchSample& before, const WatchSample& now, double seconds) {
  const auto& a = before.snapshot;
  const auto& b = now.snapshot;
  if (b.phase != Phase::kPrefill && b.phase != Phase::kDecode) return "time: -";
  const double experts = std::clamp((b.cache.wait_seconds - a.cache.wait_seconds) / seconds, 0.0, 1.0);
  const double dense = std::clamp((b.dense_wait_seconds - a.dense_wait_seconds) / seconds, 0.0, 1.0);
  const double compute = std::max(0.0, 1 - experts - dense);
  return "time: experts " + Percent(experts) + ", dense " + Percent(dense) + ", computing " + Percent(compute);
}

std::string CacheLine(const EngineMonitor::Snapshot& s) {
  const uint64_t asked = s.cache.hits + s.cache.misses;
  std::string line = "cache: " + std::to_string(s.resident) + " of " + std::to_string(s.slots) + " slots";
  if (asked > 0) line += ", hits " + Percent(static_cast<double>(s.cache.hits) / static_cast<double>(asked));
  const uint64_t useful = s.cache.prefetch_useful_bytes,
                 wasted = s.cache.prefetch_wasted_bytes + s.io.cancelled_guess_bytes;
  const auto all = static_cast<double>(s.cache.demand_bytes + useful + wasted);
  if (useful + wasted > 0)
    line += ", read ahead " + Percent(static_cast<double>(useful) / all) + " (late " +
            Percent(static_cast<double>(s.cache.prefetch_late_bytes) / all) + "), in vain " +
            Percent(static_cast<double>(wasted) / all);
  return line;
}

}  // namespace

int WatchPanelRows(size_t drives) { return 4 + static_cast<int>(drives) + (drives > 1 ? 1 : 0); }

std::vector<std::string> WatchPanel(const WatchSample& before, const WatchSample& now, int width) {
  const double seconds = std::max(SecondsBetween(before.at_ns, now.at_ns), 1e-3);
  const EngineMonitor::Snapshot& s = now.snapshot;
  const double rate = static_cast<double>(Since(before.snapshot.io.device_bytes, s.io.device_bytes)) / seconds;
  size_t longest = 10;
  for (const DriveInfo& drive : s.drives) longest = std::max(longest, drive.name.size());
  const int name_width = static_cast<int>(std::min<size_t>(longest, width > 120 ? 40 : width > 60 ? 16 : 10));

  const auto columns_there = static_cast<size_t>(std::max(width, 1));
  std::vector<std::string> lines;
  lines.emplace_back(columns_there, '-');
  const std::string status = StatusText(s, now.at_ns, rate);
  lines.push_back(CutAtWord(status.empty() ? "idle" : status, columns_there));
  // The number of lines depends on the width alone: a panel that grows and shrinks would scroll the answer.
  const std::string time = TimeLine(before, now, seconds), cache = CacheLine(s);
  if (width >= kOneLineOfCounters) {
    lines.push_back(CutAtWord(time + "   " + cache, columns_there));
  } else {
    lines.push_back(CutAtWord(time, columns_there));
    lines.push_back(CutAtWord(cache, columns_there));
  }
  std::vector<DriveRow> rows = DriveRows(before, now, seconds);
  // Explains a figure in a column that such a terminal has no room for.
  if (rows.size() > 1 && width < kNarrow) rows.back().note.clear();
  size_t note_width = 0;
  for (const DriveRow& row : rows) note_width = std::max(note_width, row.note.size() + 1);
  const Columns columns = Columns::For(width, name_width, static_cast<int>(note_width));
  lines.push_back(Join({"drive", -1, "now", "of", "share", "queue", "p50", "p99", ""}, columns));
  for (const DriveRow& row : rows) lines.push_back(Join(row, columns));
  for (std::string& line : lines)
    if (static_cast<int>(line.size()) > width) line.resize(static_cast<size_t>(std::max(width, 0)));
  return lines;
}

}  // namespace deltafin
