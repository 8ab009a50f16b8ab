#include <cstdio>

#include "base/result.h"
#include "base/units.h"
#include "bench/run_report.h"
#include "bench/svg_plot.h"

namespace deltafin {
namespace {

std::string Number(double value, const char* format = "%.1f") {
  char text[40];
  std::snprintf(text, sizeof text, format, value);
  return text;
}

std::string Joined(const std::vector<std::string>& words) {
  std::string out;
  for (const std::string& word : words) out += Cat(out.empty() ? "" : " ", word);
  return out;
}

std::string DriveText(const BenchDevice& d) {
  std::string out = d.name;
  if (!d.model.empty()) out += Cat(" (", d.model, ")");
  out += Cat(", ", d.file_system, ", holds ",
             d.folders.size() == 1 ? d.folders.front() : Cat(d.folders.size(), " folders"));
  return d.counters.empty() ? out + ", not counted by the kernel" : out;
}

std::string FigureRow(const CaseFigures& f) {
  const auto bytes = [](double value) { return FormatBytes(static_cast<uint64_t>(value)); };
  std::string kernel = "-";
  if (f.kernel_bytes) kernel = bytes(*f.kernel_bytes);
  if (f.kernel_over_own) kernel += Number(*f.kernel_over_own, " (%.3f)");
  const std::string drafts = f.drafted == 0 ? "-" : Cat(f.drafted_right, "/", f.drafted);
  return Cat("| ", MarkdownText(f.arm), " | ", MarkdownText(f.prompt), " (", f.prompt_tokens, ") | ", f.new_tokens,
             " | ", f.rounds.size(), " | ", SpreadText(f.steady.spread()), " | ", SpreadText(f.inclusive.spread()),
             " | ", SpreadText(f.with_load.spread()), " | ", AgainText(f.inclusive.spread()), " | ",
             SpreadText(f.first_token.spread()), " | ", bytes(f.own_bytes), " | ", kernel, " | ", drafts, " | `",
             f.ids_sha256.substr(0, 12), "` |\n");
}

}  // namespace

std::string MarkdownText(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '|') out += '\\';
    if (c == '<') {
      out += "&lt;";
      continue;
    }
    out += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? ' ' : c;
  }
  return out;
}

std::string SpreadText(const Spread& s) {
  if (s.count == 0) return "-";
  const std::string median = ShortNumber(s.median);
  return s.count == 1 ? median : Cat(median, " (", ShortNumber(s.min), "-", ShortNumber(s.max), ")");
}

std::string AgainText(const Spread& s) {
  return s.again_high <= 0 ? "-" : Cat(ShortNumber(s.again_low), "-", ShortNumber(s.again_high));
}

std::vector<ReportLine> MachineLines(const BenchResult& r) {
  const MachineDescription& m = r.machine;
  std::vector<ReportLine> out;
  std::string processors =
      Cat(m.processor.empty() ? "unknown processor" : m.processor, ", ", m.processors, " processors");
  if (m.processor_quota > 0) processors += Number(m.processor_quota, ", limited to %.1f");
  if (!m.governor.empty()) processors += Cat(", governor ", m.governor);
  out.push_back({"processor", processors});
  out.push_back({"memory", Cat(FormatBytes(m.memory_bytes), ", ", FormatBytes(m.memory_available_bytes),
                               " to be had, huge pages ", m.huge_pages.empty() ? "unknown" : m.huge_pages, ", swap ",
                               FormatBytes(m.swap_bytes))});
  out.push_back({"system", Cat(m.system, ", ", m.architecture)});
  for (const auto& [name, value] : m.limits) out.push_back({name, value});
  for (const BenchDevice& d : r.devices) out.push_back({"drive", DriveText(d)});
  out.push_back({"program", Cat("deltafin ", m.program.version, ", commit ", m.program.commit, ", ", m.program.compiler,
                                ", ", m.program.build)});
  if (!r.runs.empty()) out.push_back({"engine", r.runs.back().engine});
  std::string load;
  if (r.load_average_start) load = Number(*r.load_average_start, "%.2f at the start");
  if (r.load_average_end) load += Number(*r.load_average_end, ", %.2f at the end");
  if (!load.empty()) out.push_back({"load average", load});
  return out;
}

std::vector<ReportLine> ProtocolLines(const BenchResult& r) {
  std::vector<ReportLine> out;
  out.push_back({"started", Cat(r.started, ", took ", FormatSeconds(r.seconds))});
  out.push_back({"model", r.model});
  out.push_back({"command", r.command});
  for (const BenchArm& arm : r.arms)
    out.push_back({Cat("arm ", arm.name), Cat(arm.arguments.empty() ? "no options of its own" : Joined(arm.arguments),
                                              arm.inexact ? " (may give other tokens)" : "")});
  for (const BenchPrompt& p : r.prompts)
    out.push_back({Cat("prompt ", p.name), Cat(p.ids.size(), " tokens, SHA-256 of the ids ", p.ids_sha256)});
  out.push_back({"order", Cat(r.rounds, r.rounds == 1 ? " round" : " rounds",
                              ", arms take turns, rotated and reversed (AB BA BA AB); one process at a time")});
  out.push_back({"warm-up", Cat(r.warm_ups, r.warm_ups == 1 ? " run" : " runs",
                                " of every arm before the first round, not counted")});
  out.push_back({"cold", r.cold});
  out.push_back({"answers", r.answers});
  out.push_back({"steady", "new tokens after the first over the time after the first"});
  out.push_back(
      {"inclusive", "all new tokens over the time from the request to the last one: prompt included, loading not"});
  out.push_back(
      {"with load",
       "inclusive with the time to load the weights before the request; the published inclusive rates hold the "
       "engine's start, so this one is to be put beside them"});
  out.push_back({"first token", "from the request to the first new token, loading not"});
  out.push_back({"bytes",
                 "own: what the program read from the drives, padding included; kernel: what the drives' counters say, "
                 "with what other programs read; ratio: the second over the first"});
  out.push_back({"drafts right", "drafted tokens that were kept, of all that were drafted"});
  out.push_back({"spread",
                 "median (least-most of the rounds); \"again\": where the median of as many new rounds lies in 99 % of "
                 "cases, if the machine stays as it is"});
  return out;
}

std::string ResultMarkdown(const BenchResult& r) {
  std::string out = "# bench run\n\n";
  if (r.state == BenchState::kVoided)
    out += Cat("**VOIDED: no number of this run counts.** ", MarkdownText(r.reason), "\n\n");
  else if (r.state == BenchState::kPartial)
    out += Cat("**PARTIAL: not all rounds were run.** ", MarkdownText(r.reason), "\n\n");
  const std::vector<CaseFigures> figures = FiguresOf(r);
  if (!figures.empty()) {
    out +=
        "| arm | prompt (tokens) | new | rounds | steady tokens/s | inclusive tokens/s | with load tokens/s | again | "
        "first token s | own "
        "bytes | "
        "kernel bytes (ratio) | drafts right | ids |\n|---|---|---|---|---|---|---|---|---|---|---|---|---|\n";
    for (const CaseFigures& f : figures) out += FigureRow(f);
    out += "\n";
  }
  for (const std::string& warning : r.warnings) out += Cat("* warning: ", MarkdownText(warning), "\n");
  if (!r.warnings.empty()) out += "\n";
  for (const auto& lines : {MachineLines(r), ProtocolLines(r)})
    for (const ReportLine& line : lines) out += Cat("* ", line.name, ": ", MarkdownText(line.value), "\n");
  return out;
}

}  // namespace deltafin
