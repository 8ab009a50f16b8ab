// run_report: a BenchResult for people: a table in Markdown, and one HTML file with plots that asks nothing of a
// network.
//
// Pure functions of the result. A voided result has no figures in either, and says why; a partial one is marked.
#pragma once

#include <string>
#include <vector>

#include "bench/run_figures.h"

namespace deltafin {

std::string ResultMarkdown(const BenchResult& result);
std::string ResultHtml(const BenchResult& result);

// Name and value, one line each: machine, program, drives, how it was measured. For both.
struct ReportLine {
  std::string name, value;
};
std::vector<ReportLine> MachineLines(const BenchResult& result);
std::vector<ReportLine> ProtocolLines(const BenchResult& result);
// In one line, a table cell that does not end early, without markup and what a terminal would obey.
std::string MarkdownText(const std::string& text);
// "0.927 (0.91-0.94)": the median and what was seen; "-" without values.
std::string SpreadText(const Spread& spread);
std::string AgainText(const Spread& spread);

}  // namespace deltafin
