#include <algorithm>
#include <set>

#include "base/result.h"
#include "base/units.h"
#include "bench/run_report.h"
#include "bench/svg_plot.h"

namespace deltafin {
namespace {

constexpr const char* kStyle = R"css(
:root{color-scheme:light dark;--paper:#fcfcfa;--ink:#1d2526;--soft:#5d6b6c;--grid:#e0e4e1;--card:#fff;--bad:#a4231a;
--c0:#0b6e8f;--c1:#d9822b;--c2:#4a9a5b;--c3:#8a5fb5;--c4:#c2493d;--c5:#b59a1e;--c6:#3f8fd2;--c7:#a3466f;--c8:#7d8a8c;--c9:#a9b3b1;--c10:#dcdfdb}
@media (prefers-color-scheme:dark){:root{--paper:#15191a;--ink:#e6ebea;--soft:#9aa8a8;--grid:#2c3435;--card:#1b2122;
--bad:#ff8a7a;--c0:#4fb3d4;--c1:#f0a35a;--c2:#74c487;--c3:#b896dd;--c4:#ee8377;--c5:#dcc555;--c6:#7cbcf2;--c7:#dd86ac;
--c8:#93a1a2;--c9:#66757a;--c10:#3d484a}}
*{box-sizing:border-box}
body{margin:0 auto;max-width:1240px;padding:28px 20px 60px;background:var(--paper);color:var(--ink);
font:15px/1.5 system-ui,-apple-system,"Segoe UI",sans-serif}
h1{font-size:24px;margin:0 0 4px}h2{font-size:18px;margin:34px 0 8px}h3{font-size:15px;margin:18px 0 4px}
p.note{color:var(--soft);margin:2px 0 10px}
.bad{border-left:5px solid var(--bad);padding:8px 14px;background:var(--card);margin:14px 0;overflow-wrap:anywhere}.bad b{color:var(--bad)}
.wide{overflow-x:auto}table{border-collapse:collapse;font-size:13px;font-variant-numeric:tabular-nums}
th,td{padding:5px 10px;border-bottom:1px solid var(--grid);text-align:right;white-space:nowrap}
th{color:var(--soft);font-weight:500}td.l,th.l{text-align:left}table.about td{white-space:normal;overflow-wrap:anywhere;text-align:left;vertical-align:top}
table.about td:first-child{color:var(--soft);min-width:84px}code{font-size:12px}
.plot{overflow-x:auto}svg{width:100%;min-width:640px;height:auto;display:block;background:var(--card);border:1px solid var(--grid);border-radius:6px;margin:6px 0}
svg text{fill:var(--ink);font:12px system-ui,sans-serif}svg .tick{fill:var(--soft)}svg .end{text-anchor:end}svg .mid{text-anchor:middle}
svg .grid{stroke:var(--grid)}svg .marker{stroke:var(--soft);stroke-dasharray:4 4}
.legend{margin:6px 0;font-size:13px}.legend span{margin-right:14px;white-space:nowrap}.legend i{display:inline-block;width:11px;height:11px;
border-radius:2px;margin-right:5px;vertical-align:-1px}
)css";

// Wider than a small window, it can be moved in it: its text would be too small to read.
template <typename AnyPlot>
std::string Plot(const AnyPlot& plot) {
  return Cat("<div class=\"plot\">", ToSvg(plot), "</div>");
}

std::vector<std::string> ArmNames(const BenchResult& r) {
  std::vector<std::string> names;
  for (const BenchArm& arm : r.arms) names.push_back(arm.name);
  return names;
}

IntervalPlot::Mark MarkOf(const Series& series) {
  const Spread s = series.spread();
  if (s.count == 0) return {};
  return {s.min, s.median, s.max};
}

// One plot a prompt: steady and inclusive rates of every arm by length.
std::string RatePlots(const BenchResult& r, const std::vector<CaseFigures>& figures) {
  std::string out;
  for (const BenchPrompt& prompt : r.prompts) {
    IntervalPlot plot{
        .label = Cat("rates by length, prompt ", prompt.name), .unit = "tokens/s", .categories = {}, .lines = {}};
    bool any = false;
    for (const int64_t length : prompt.lengths)
      plot.categories.push_back(Cat(length, length == 1 ? " token" : " tokens"));
    for (size_t a = 0; a < r.arms.size(); ++a) {
      IntervalPlot::Line steady{r.arms[a].name + " steady", false, a, {}},
          inclusive{r.arms[a].name + " inclusive", true, a, {}};
      for (const int64_t length : prompt.lengths) {
        const auto f = std::find_if(figures.begin(), figures.end(), [&](const CaseFigures& c) {
          return c.arm == r.arms[a].name && c.prompt == prompt.name && c.new_tokens == length;
        });
        steady.marks.push_back(f == figures.end() ? IntervalPlot::Mark{} : MarkOf(f->steady));
        inclusive.marks.push_back(f == figures.end() ? IntervalPlot::Mark{} : MarkOf(f->inclusive));
        any = any || steady.marks.back().middle > 0;
      }
      plot.lines.push_back(std::move(steady));
      plot.lines.push_back(std::move(inclusive));
    }
    if (!any) continue;  // a prompt alone has no rate of tokens
    out += Cat("<h3>", EscapeXml(prompt.name), ", ", prompt.ids.size(), " prompt tokens</h3>", Plot(plot));
  }
  if (out.empty()) return "";
  return Cat(
      "<h2>Rate by length</h2><p class=\"note\">Filled: steady, after the first token. Hollow: inclusive, with the "
      "prompt. "
      "Whiskers: the slowest and the fastest round.</p>",
      LegendHtml(ArmNames(r)), out);
}

std::string BarName(const BenchResult& r, const CaseFigures& f) {
  return r.arms.size() > 1 ? f.arm + ", " + f.name() : f.name();
}

std::string TimePlots(const BenchResult& r, const std::vector<CaseFigures>& figures) {
  if (figures.empty()) return "";
  StackPlot decoding{.label = "where the time of decoding goes", .unit = "ms a token", .parts = {}, .bars = {}};
  StackPlot prompt{
      .label = "where the time of the prompt goes", .unit = "s to the first token", .parts = {}, .bars = {}};
  // Beside "everything else" it would say nothing.
  for (const TimePart& part : figures.front().time)
    decoding.parts.push_back(part.name == "others" ? "other operations" : part.name);
  prompt.parts = decoding.parts;
  for (const CaseFigures& f : figures) {
    StackPlot::Bar after{BarName(r, f), {}}, before{BarName(r, f), {}};
    for (const TimePart& part : f.time) {
      after.parts.push_back(f.new_tokens > 1 ? part.decoding * 1e3 / static_cast<double>(f.new_tokens - 1) : 0);
      before.parts.push_back(part.prompt);
    }
    if (f.new_tokens > 1) decoding.bars.push_back(std::move(after));
    prompt.bars.push_back(std::move(before));
  }
  std::string out =
      "<h2>Where the time goes</h2><p class=\"note\">Medians of the rounds. Dense matrices hold the projections of the "
      "attention layers; KDA and MLA are what is computed between them.</p>" +
      LegendHtml(decoding.parts);
  if (!decoding.bars.empty()) out += "<h3>Decoding</h3>" + Plot(decoding);
  return out + "<h3>Prompt</h3>" + Plot(prompt);
}

// Bytes a second between samples, at most so many steps.
std::vector<CurvePlot::Point> DrawOf(const BenchRun& run, size_t device) {
  constexpr double kSteps = 240;
  std::vector<CurvePlot::Point> out;
  const double step = run.samples.back().seconds / kSteps;
  double from = 0, from_bytes = 0;
  for (const DriveSample& sample : run.samples) {
    if (device >= sample.bytes.size() || sample.seconds - from < step || sample.seconds <= from) continue;
    const auto bytes = static_cast<double>(sample.bytes[device]);
    const double rate = (bytes - from_bytes) / (sample.seconds - from) * 1e-9;
    out.push_back({from, rate});
    from = sample.seconds;
    from_bytes = bytes;
  }
  if (!out.empty()) out.push_back({from, out.back().y});
  return out;
}

std::string DrawPlot(const BenchResult& r, const CaseFigures& f) {
  const BenchRun* run = MiddleRun(r, f);
  if (run == nullptr || run->samples.size() < 2) return "";
  CurvePlot plot{.label = Cat("draw per drive, ", BarName(r, f)),
                 .x_unit = "s since the process began",
                 .y_unit = "GB/s",
                 .curves = {},
                 .markers = {}};
  std::vector<std::string> names;
  for (size_t d = 0; d < r.devices.size(); ++d) {
    plot.curves.push_back({r.devices[d].name, DrawOf(*run, d)});
    const uint64_t bytes = d < run->kernel_bytes.size() ? run->kernel_bytes[d] : 0;
    const double rate = run->seconds_process > 0 ? static_cast<double>(bytes) / run->seconds_process : 0;
    names.push_back(Cat(r.devices[d].name, ": ", FormatBytes(bytes), ", ", FormatRate(rate), " on average"));
  }
  plot.markers = {{run->first_token_at - run->seconds_first_token, "loaded"}, {run->first_token_at, "first token"}};
  return Cat("<h3>", EscapeXml(BarName(r, f)), ", round ", run->round, "</h3>", LegendHtml(names), Plot(plot));
}

// For each arm and prompt the longest answer.
std::string DrawPlots(const BenchResult& r, const std::vector<CaseFigures>& figures) {
  std::string out;
  std::set<std::pair<std::string, std::string>> seen;
  for (auto f = figures.rbegin(); f != figures.rend(); ++f)
    if (seen.insert({f->arm, f->prompt}).second) out = DrawPlot(r, *f) + out;
  const std::string title = "<h2>Draw of the drives over time</h2>";
  if (out.empty()) return title + "<p class=\"note\">The kernel has no counters of the drives under the model.</p>";
  return title +
         "<p class=\"note\">As the kernel counted it, for the round in the middle; what other programs read is in "
         "it.</p>" +
         out;
}

std::string Table(const std::vector<CaseFigures>& figures) {
  std::string out =
      "<h2>Figures</h2><div class=\"wide\"><table><tr><th class=\"l\">arm</th><th "
      "class=\"l\">prompt</th><th>new</th><th>rounds</th>"
      "<th>steady tokens/s</th><th>inclusive tokens/s</th><th>with load tokens/s</th><th>again</th><th>first token "
      "s</th><th>own bytes</th><th>kernel bytes</th><th>ratio</th><th>drafts right</th><th class=\"l\">ids</th></tr>";
  const auto bytes = [](double value) { return FormatBytes(static_cast<uint64_t>(value)); };
  for (const CaseFigures& f : figures) {
    out += Cat("<tr><td class=\"l\">", EscapeXml(f.arm), "</td><td class=\"l\">", EscapeXml(f.prompt), " (",
               f.prompt_tokens, ")</td><td>", f.new_tokens, "</td><td>", f.rounds.size(), "</td><td>",
               SpreadText(f.steady.spread()), "</td><td>", SpreadText(f.inclusive.spread()), "</td><td>",
               SpreadText(f.with_load.spread()), "</td><td>", AgainText(f.inclusive.spread()), "</td><td>",
               SpreadText(f.first_token.spread()), "</td>");
    out += Cat("<td>", bytes(f.own_bytes), "</td><td>", f.kernel_bytes ? bytes(*f.kernel_bytes) : "-", "</td><td>",
               f.kernel_over_own ? ShortNumber(*f.kernel_over_own) : "-", "</td><td>",
               f.drafted == 0 ? "-" : Cat(f.drafted_right, "/", f.drafted), "</td><td class=\"l\"><code title=\"",
               f.ids_sha256, "\">", f.ids_sha256.substr(0, 12), "</code></td></tr>");
  }
  return out +
         "</table></div><p class=\"note\">Medians, and in brackets the least and the most of the rounds. Steady: after "
         "the "
         "first token. Inclusive: with the prompt. With load: with loading the weights too. Again: where the inclusive "
         "median of another run lies. Own and kernel bytes: read from the drives as the program and as the kernel "
         "count; "
         "ratio: kernel over own. Drafts right: of all that were drafted. Ids: the beginning of their SHA-256.</p>";
}

std::string About(const char* title, const std::vector<ReportLine>& lines) {
  std::string out = Cat("<h2>", title, "</h2><table class=\"about\">");
  for (const ReportLine& line : lines)
    out += Cat("<tr><td>", EscapeXml(line.name), "</td><td>", EscapeXml(line.value), "</td></tr>");
  return out + "</table>";
}

std::string StateHtml(const BenchResult& r) {
  if (r.state == BenchState::kVoided)
    return Cat("<div class=\"bad\"><b>Voided: no number of this run counts.</b> ", EscapeXml(r.reason), "</div>");
  if (r.state == BenchState::kPartial)
    return Cat("<div class=\"bad\"><b>Partial: not all rounds were run.</b> ", EscapeXml(r.reason), "</div>");
  return "";
}

}  // namespace

std::string ResultHtml(const BenchResult& r) {
  std::string out =
      Cat("<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><title>deltafin bench run</title>"
          "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\"><style>",
          kStyle, "</style></head><body>");
  out += Cat("<h1>deltafin bench run</h1><p class=\"note\">", EscapeXml(r.model), " &middot; ", EscapeXml(r.started),
             "</p>", StateHtml(r));
  for (const std::string& warning : r.warnings)
    out += Cat("<div class=\"bad\"><b>Warning:</b> ", EscapeXml(warning), "</div>");
  const std::vector<CaseFigures> figures = FiguresOf(r);
  if (!figures.empty()) out += Table(figures) + RatePlots(r, figures) + TimePlots(r, figures) + DrawPlots(r, figures);
  return out + About("Machine", MachineLines(r)) + About("How it was measured", ProtocolLines(r)) + "</body></html>\n";
}

}  // namespace deltafin
