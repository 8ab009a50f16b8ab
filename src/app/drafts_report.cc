#include "app/drafts_report.h"

#include <cstdio>
#include <nlohmann/json.hpp>

namespace deltafin {
namespace {

// Tokens to a step, over the steps that checked drafts.
std::string PerStep(const DraftReport& report) {
  uint64_t steps = 0, tokens = 0;
  for (size_t rows = 2; rows < report.by_rows.size(); ++rows) {
    steps += report.by_rows[rows].steps;
    tokens += report.by_rows[rows].tokens;
  }
  char text[80];
  std::snprintf(text, sizeof text, "%.2f tokens a step in %llu steps",
                static_cast<double>(tokens) / static_cast<double>(steps), static_cast<unsigned long long>(steps));
  return text;
}

}  // namespace

Json DraftFigures(const DraftReport& report) {
  Json out;
  out["state"] = ToString(report.state);
  if (!report.given_up.empty()) out["given_up"] = report.given_up;
  out["steps"] = Json::array();
  for (size_t rows = 1; rows < report.by_rows.size(); ++rows) {
    const DraftReport::Steps& s = report.by_rows[rows];
    if (s.steps == 0) continue;
    out["steps"].push_back({{"rows", rows},
                            {"steps", s.steps},
                            {"tokens", s.tokens},
                            {"seconds", s.seconds},
                            {"payload_bytes", s.payload_bytes}});
  }
  out["drafters"] = Json::array();
  for (const DraftReport::OfDrafter& d : report.drafters) {
    Json figures = {{"name", d.name},         {"proposals", d.proposals}, {"drafted", d.tried()},
                    {"right", d.right()},     {"seconds", d.seconds},     {"seconds_observing", d.seconds_observing},
                    {"tried_at", d.tried_at}, {"right_at", d.right_at}};
    if (!d.silence.empty()) figures["silence"] = d.silence;
    if (!d.failure.empty()) figures["failure"] = d.failure;
    out["drafters"].push_back(std::move(figures));
  }
  return out;
}

std::string DraftText(const DraftReport& report) {
  std::string text;
  for (const DraftReport::OfDrafter& d : report.drafters) {
    if (d.tried() > 0) text += Cat(text.empty() ? "" : ", ", d.right(), " of ", d.tried(), " from ", d.name, " right");
    if (!d.silence.empty() && d.failure.empty())
      text += Cat(text.empty() ? "" : ", ", d.name, " was silent (", d.silence, ")");
    if (!d.failure.empty()) text += Cat(text.empty() ? "" : ", ", d.name, " was left out (", d.failure, ")");
  }
  if (!report.given_up.empty())
    text += Cat(text.empty() ? "" : ", ", "given up, as a step with drafts failed (", report.given_up, ")");
  if (text.empty()) return "";
  uint64_t drafted_steps = 0;
  for (size_t rows = 2; rows < report.by_rows.size(); ++rows) drafted_steps += report.by_rows[rows].steps;
  if (drafted_steps > 0) text += "; " + PerStep(report);
  return Cat("drafts: ", text, "; ", ToString(report.state), " at the end\n");
}

}  // namespace deltafin
