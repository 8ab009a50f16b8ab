#include <cstdio>
#include <nlohmann/json.hpp>

#include "bench/compare.h"
#include "bench/run_report.h"
#include "bench/svg_plot.h"

namespace deltafin {
namespace {

constexpr const char* kMethod =
    "median of B over median of A; 95 % interval from Student's t on logarithms, medians taken to scatter sqrt(pi/2) "
    "times as far "
    "as means";

Json ToJson(const Spread& s) {
  return {{"median", s.median},
          {"min", s.min},
          {"max", s.max},
          {"quartile_low", s.quartile_low},
          {"quartile_high", s.quartile_high},
          {"rounds", s.count}};
}

Json ToJson(const ComparedRate& rate) {
  if (rate.a.count == 0) return nullptr;
  Json out = {{"a", ToJson(rate.a)}, {"b", ToJson(rate.b)}, {"ratio", rate.ratio.ratio}};
  const bool known = rate.ratio.high > 0;
  out["ratio_low"] = known ? Json(rate.ratio.low) : Json(nullptr);
  out["ratio_high"] = known ? Json(rate.ratio.high) : Json(nullptr);
  return out;
}

std::string RatioText(const RatioInterval& r) {
  char text[80];
  if (r.ratio <= 0) return "-";
  if (r.high <= 0)
    std::snprintf(text, sizeof text, "%.3f", r.ratio);
  else
    std::snprintf(text, sizeof text, "%.3f (%.3f-%.3f)", r.ratio, r.low, r.high);
  return text;
}

const char* Verdict(const RatioInterval& r) {
  if (r.high <= 0) return "one round: unknown";
  if (r.low > 1) return "B faster";
  return r.high < 1 ? "A faster" : "no difference shown";
}

void AddRow(const ComparedCase& c, const char* what, const ComparedRate& rate, std::string* out) {
  if (rate.a.count == 0) return;
  *out += Cat("| ", MarkdownText(c.name()), " | ", what, " | ", SpreadText(rate.a), " | ",
              ShortNumber(rate.a.quartile_low), "-", ShortNumber(rate.a.quartile_high), " | ", SpreadText(rate.b),
              " | ", ShortNumber(rate.b.quartile_low), "-", ShortNumber(rate.b.quartile_high), " | ",
              RatioText(rate.ratio), " | ", Verdict(rate.ratio), c.same_ids ? "" : "; other text", " |\n");
}

}  // namespace

Json ComparisonToJson(const Comparison& c) {
  Json out = {{"a", {{"file", c.name_a}, {"arm", c.arm_a}}}, {"b", {{"file", c.name_b}, {"arm", c.arm_b}}}};
  out["paired"] = c.paired;
  out["method"] =
      c.paired ? "median of the ratios B over A of each round; 95 % interval from Student's t on their logarithms"
               : kMethod;
  out["cases"] = Json::array();
  for (const ComparedCase& k : c.cases) {
    Json entry = {{"prompt", k.prompt}, {"new_tokens", k.new_tokens}, {"same_ids", k.same_ids}};
    entry["tokens_per_second_steady"] = ToJson(k.steady);
    entry["tokens_per_second_inclusive"] = ToJson(k.inclusive);
    entry["seconds_first_token"] = ToJson(k.first_token);
    out["cases"].push_back(std::move(entry));
  }
  out["mean_ratio_inclusive"] = c.mean_ratio;
  out["cases_faster"] = c.faster;
  out["sign_probability"] = c.sign_probability;
  out["notes"] = c.notes;
  return out;
}

std::string ComparisonMarkdown(const Comparison& c) {
  std::string out =
      Cat(c.paired ? "# bench compare, paired\n\n* A: " : "# bench compare, not paired\n\n* A: ", c.name_a, ", arm ",
          c.arm_a, "\n* B: ", c.name_b, ", arm ", c.arm_b, "\n");
  for (const std::string& note : c.notes) out += Cat("* note: ", MarkdownText(note), "\n");
  out +=
      "\n| case | tokens/s | A: median (least-most) | A: quartiles | B: median (least-most) | B: quartiles | B / A (95 "
      "%) | |\n"
      "|---|---|---|---|---|---|---|---|\n";
  for (const ComparedCase& k : c.cases) {
    AddRow(k, "steady", k.steady, &out);
    AddRow(k, "inclusive", k.inclusive, &out);
  }
  char text[240];
  constexpr double kRare = 0.05;
  std::snprintf(
      text, sizeof text,
      "\nOver all cases B / A is %.3f (geometric mean, inclusive). B is faster in %d of %zu: %s (by chance alone "
      "such a split or a clearer one comes %.0f times in 100).\n",
      c.mean_ratio, c.faster, c.cases.size(),
      c.sign_probability > kRare ? "no evidence of a difference" : "evidence of a difference",
      100 * c.sign_probability);
  return Cat(out, text, c.paired ? "Compared round by round.\n" : "Two runs: the rounds are not paired.\n", "B / A: ",
             c.paired ? "median of the rounds' ratios; interval from Student's t on their logarithms" : kMethod, ".\n");
}

}  // namespace deltafin
