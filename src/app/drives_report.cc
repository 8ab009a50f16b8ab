#include "app/drives_report.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "app/terminal.h"
#include "base/json.h"
#include "base/units.h"

namespace deltafin {
namespace {

Json DriveJson(const ProbedDrive& d) {
  Json out;
  out["folder"] = d.folder;
  out["identity"] = d.drive.identity;
  out["device"] = d.drive.device;
  out["model"] = d.drive.model;
  out["mount_point"] = d.drive.mount_point;
  out["file_system"] = d.drive.file_system;
  out["bytes_per_second"] = d.profile.bytes_per_second;
  out["block_bytes"] = d.profile.block_bytes;
  out["depth"] = d.profile.depth;
  out["direct"] = d.profile.direct;
  out["direct_possible"] = d.direct_possible;
  out["direct_bytes_per_second"] = d.direct_bytes_per_second;
  out["buffered_bytes_per_second"] = d.buffered_bytes_per_second;
  out["buffered_cached"] = d.buffered_cached;
  out["latency_p50_seconds"] = d.latency_p50_seconds;
  out["latency_p99_seconds"] = d.latency_p99_seconds;
  out["own_test_file"] = d.own_file;
  out["bytes_read"] = d.bytes_read;
  out["grid"] = DriveGridJson(d.profile.grid);
  return out;
}

std::string Row(const std::array<std::string, 7>& cells, const std::array<size_t, 7>& widths) {
  std::string line;
  for (size_t i = 0; i < cells.size(); ++i) {
    const std::string blanks(widths[i] - std::min(widths[i], cells[i].size()), ' ');
    line += i < 2 ? cells[i] + blanks : blanks + cells[i];
    line += i + 1 < cells.size() ? "  " : "\n";
  }
  return line;
}

std::string Milliseconds(double seconds) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.2f ms", seconds * 1e3);
  return text.data();
}

std::string Percent(double part) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.0f %%", part * 100);
  return text.data();
}

// "1.05 MB" would be confusing for a power of two.
std::string BlockSize(uint64_t bytes) { return bytes >= kMiB ? Cat(bytes / kMiB, " MiB") : Cat(bytes / kKiB, " KiB"); }

std::string PairLines(const ProbeReport& report) {
  std::string text;
  for (const ProbedPair& pair : report.pairs) {
    if (!pair.shares_limit) continue;
    const ProbedDrive& a = report.drives[pair.first];
    const ProbedDrive& b = report.drives[pair.second];
    text += Cat(a.folder, " and ", b.folder, " share a limit: together ",
                FormatRate(pair.first_bytes_per_second + pair.second_bytes_per_second), ", ",
                Percent(pair.part_of_alone), " of what they deliver alone\n");
  }
  return text;
}

}  // namespace

std::string DrivesJson(const ProbeReport& report, const std::vector<std::string>& notes) {
  Json out;
  out["engine"] = report.engine;
  out["drives"] = Json::array();
  for (const ProbedDrive& drive : report.drives) out["drives"].push_back(DriveJson(drive));
  out["pairs"] = Json::array();
  for (const ProbedPair& pair : report.pairs) {
    Json entry;
    entry["drives"] = Json::array({report.drives[pair.first].folder, report.drives[pair.second].folder});
    entry["bytes_per_second"] = Json::array({pair.first_bytes_per_second, pair.second_bytes_per_second});
    entry["part_of_alone"] = pair.part_of_alone;
    entry["shares_limit"] = pair.shares_limit;
    out["pairs"].push_back(std::move(entry));
  }
  out["together_bytes_per_second"] = report.together;
  out["skipped"] = Json::array();
  for (const SkippedDrive& skipped : report.skipped) {
    Json entry;
    entry["folder"] = skipped.folder;
    entry["device"] = skipped.device;
    entry["reason"] = skipped.reason;
    out["skipped"].push_back(std::move(entry));
  }
  out["notes"] = notes;
  return DumpJson(out) + "\n";
}

std::string DrivesTable(const ProbeReport& report) {
  std::vector<std::array<std::string, 7>> rows;
  rows.push_back({"drive", "folder", "rate", "reads of", "buffered", "p50", "p99"});
  for (const ProbedDrive& d : report.drives)
    rows.push_back({d.drive.device, Printable(d.folder), FormatRate(d.profile.bytes_per_second),
                    Cat(BlockSize(d.profile.block_bytes), " x ", d.profile.depth, d.profile.direct ? "" : " buffered"),
                    d.buffered_cached ? "cached" : FormatRate(d.buffered_bytes_per_second),
                    Milliseconds(d.latency_p50_seconds), Milliseconds(d.latency_p99_seconds)});
  std::array<size_t, 7> widths{};
  for (const auto& row : rows)
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  std::string text;
  if (rows.size() > 1)
    for (const auto& row : rows) text += Row(row, widths);
  double alone = 0, together = 0;
  for (const ProbedDrive& d : report.drives) alone += d.profile.bytes_per_second;
  for (const double rate : report.together) together += rate;
  if (!report.together.empty())
    text += Cat("all together ", FormatRate(together), ", ", Percent(together / alone), " of the sum alone\n");
  text += PairLines(report);
  for (const SkippedDrive& skipped : report.skipped)
    text +=
        Cat("not measured: ", skipped.device, " ", Printable(skipped.folder), ": ", Printable(skipped.reason), "\n");
  return text;
}

}  // namespace deltafin
