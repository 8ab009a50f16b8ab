// plan_chart: a plan as a picture: where the time of a step goes, layer by layer, and the rate by number of drives.
//
// SVG text, or the same in an HTML page with alternatives and assumptions under it, as wide as the window. Strings and
// colours only; pure functions. Text that comes from outside is escaped.
#pragma once

#include <string>
#include <vector>

#include "simulate/planner.h"

namespace deltafin::simulate {

struct ChartText {
  std::string title;
  std::vector<std::string> notes;         // below the picture
  std::vector<Alternative> alternatives;  // in pages
};

std::string PlanSvg(const PlanAnswer& answer, const std::vector<PlanAnswer>& by_drives, const ChartText& text);
std::string PlanHtml(const PlanAnswer& answer, const std::vector<PlanAnswer>& by_drives, const ChartText& text);

}  // namespace deltafin::simulate
