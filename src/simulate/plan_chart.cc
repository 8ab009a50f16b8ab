#include "simulate/plan_chart.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

#include "base/xml_text.h"

namespace deltafin::simulate {
namespace {

constexpr double kWidth = 960, kLeft = 64, kRight = 940;
constexpr double kLayersTop = 92, kLayersBottom = 330, kBarsTop = 420, kBarsBottom = 600;
constexpr double kNoteHeight = 18;
constexpr int kTicks = 4;

struct Part {
  const char* name;
  const char* colour;
};
constexpr std::array<Part, 4> kParts = {{{"attention, router, dense weights", "#4477aa"},
                                         {"shared experts, while experts are read", "#66ccee"},
                                         {"routed experts", "#228833"},
                                         {"waiting for drives", "#cc6677"}}};

std::string Fixed(double value, int digits) {
  char text[48];
  std::snprintf(text, sizeof text, "%.*f", digits, value);
  return text;
}

void Text(std::string& out, double x, double y, const char* anchor, int size, const std::string& text) {
  out += Cat("<text x=\"", Fixed(x, 1), "\" y=\"", Fixed(y, 1), "\" text-anchor=\"", anchor, "\" font-size=\"", size,
             "\">", EscapeXml(text), "</text>\n");
}

void Box(std::string& out, double x, double y, double width, double height, const char* colour) {
  out += Cat("<rect x=\"", Fixed(x, 2), "\" y=\"", Fixed(y, 2), "\" width=\"", Fixed(width, 2), "\" height=\"",
             Fixed(std::max(0.0, height), 2), "\" fill=\"", colour, "\"/>\n");
}

// The least of 1, 2 or 5 times a power of ten that is not below `value`.
double RoundUp(double value) {
  if (!(value > 0)) return 1;
  const double power = std::pow(10, std::floor(std::log10(value)));
  for (const double step : {1.0, 2.0, 5.0})
    if (value <= step * power) return step * power;
  return 10 * power;
}

// The axis at the left, with its lines.
void Axis(std::string& out, double top, double bottom, double most, const char* unit) {
  for (int i = 0; i <= kTicks; ++i) {
    const double y = bottom - (bottom - top) * i / kTicks;
    out += Cat("<line x1=\"", kLeft, "\" y1=\"", Fixed(y, 1), "\" x2=\"", kRight, "\" y2=\"", Fixed(y, 1),
               "\" stroke=\"#dddddd\"/>\n");
    const double value = most * i / kTicks;
    Text(out, kLeft - 6, y + 4, "end", 12, Fixed(value, value == 0 ? 0 : most >= 40 ? 0 : most >= 4 ? 1 : 2));
  }
  Text(out, kLeft - 6, top - 12, "end", 12, unit);
}

void Legend(std::string& out) {
  double x = kLeft;
  for (const Part& part : kParts) {
    Box(out, x, 50, 12, 12, part.colour);
    Text(out, x + 17, 60, "start", 12, part.name);
    x += 34 + 6.4 * static_cast<double>(std::char_traits<char>::length(part.name));
  }
}

void Layers(std::string& out, const std::vector<LayerSpan>& step) {
  double most = 0;
  for (const LayerSpan& s : step) most = std::max(most, s.end - s.begin);
  const double scale_ms = RoundUp(most * 1e3);
  Axis(out, kLayersTop, kLayersBottom, scale_ms, "ms");
  const double width = (kRight - kLeft) / static_cast<double>(std::max<size_t>(1, step.size()));
  const double height = (kLayersBottom - kLayersTop) / scale_ms * 1e3;
  for (size_t i = 0; i < step.size(); ++i) {
    const LayerSpan& s = step[i];
    const double experts = s.end - s.shared_done;
    // Waiting for dense weights comes before the router, for experts after the shared ones.
    const double late = std::min(s.wait, experts), early = s.wait - late;
    const std::array<double, 4> parts = {s.routed - s.begin - early, s.shared_done - s.routed, experts - late, s.wait};
    double y = kLayersBottom;
    for (size_t p = 0; p < parts.size(); ++p) {
      const double tall = std::max(0.0, parts[p]) * height;
      y -= tall;
      Box(out, kLeft + width * static_cast<double>(i), y, std::max(0.5, width - (width > 3 ? 1 : 0)), tall,
          kParts[p].colour);
    }
  }
  const size_t every = std::max<size_t>(1, step.size() / 12);
  for (size_t i = 0; i < step.size(); i += every)
    Text(out, kLeft + width * (static_cast<double>(i) + 0.5), kLayersBottom + 16, "middle", 12, Cat(step[i].layer));
  Text(out, (kLeft + kRight) / 2, kLayersBottom + 34, "middle", 12, "layers of one step, and how long each takes");
}

void Bars(std::string& out, const std::vector<PlanAnswer>& by_drives) {
  double most = 0;
  for (const PlanAnswer& a : by_drives) most = std::max(most, a.tokens_per_second);
  const double scale = RoundUp(most);
  Axis(out, kBarsTop, kBarsBottom, scale, "tokens/s");
  const double width = (kRight - kLeft) / static_cast<double>(std::max<size_t>(1, by_drives.size()));
  const double thick = std::min(90.0, width * 0.6);
  for (size_t i = 0; i < by_drives.size(); ++i) {
    const PlanAnswer& a = by_drives[i];
    const double middle = kLeft + width * (static_cast<double>(i) + 0.5);
    const double top = kBarsBottom - (kBarsBottom - kBarsTop) * a.tokens_per_second / scale;
    Box(out, middle - thick / 2, top, thick, kBarsBottom - top, "#4477aa");
    if (by_drives.size() <= 16)
      Text(out, middle, top - 5, "middle", 12, Fixed(a.tokens_per_second, a.tokens_per_second < 0.1 ? 4 : 2));
    Text(out, middle, kBarsBottom + 16, "middle", 12, Cat(i + 1));
  }
  Text(out, (kLeft + kRight) / 2, kBarsBottom + 34, "middle", 12, "number of drives, in the order given");
}

}  // namespace

namespace {

constexpr const char* kStyle =
    "body{margin:0 auto;max-width:960px;padding:16px;background:#fff;color:#222;font:15px/1.5 sans-serif}"
    "h1{font-size:19px}h2{font-size:16px}.wide{overflow-x:auto}.wide svg{min-width:680px}"
    "table{border-collapse:collapse}td,th{padding:3px 6px;border-bottom:1px solid #ddd;text-align:right}"
    "td:not(:first-child){white-space:nowrap}"
    "td:first-child,th:first-child{text-align:left;padding-left:0}ul{padding-left:20px;overflow-wrap:anywhere}";

std::string AlternativesHtml(const std::vector<Alternative>& alternatives) {
  std::string out =
      "<div class=\"wide\"><table><tr><th>instead</th><th>tokens/s</th><th>gain</th><th>first token</th></tr>\n";
  for (const Alternative& a : alternatives)
    out += Cat("<tr><td>", EscapeXml(a.change), "</td><td>",
               Fixed(a.tokens_per_second, a.tokens_per_second < 0.1 ? 4 : 2), "</td><td>", a.gain >= 0 ? "+" : "",
               Fixed(100 * a.gain, 0), " %</td><td>", Fixed(a.seconds_first_token, 0), " s</td></tr>\n");
  return out + "</table></div>\n";
}

}  // namespace

std::string PlanSvg(const PlanAnswer& answer, const std::vector<PlanAnswer>& by_drives, const ChartText& text) {
  const double height = kBarsBottom + 56 + kNoteHeight * static_cast<double>(text.notes.size());
  std::string out = Cat("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"", kWidth, "\" height=\"", height,
                        "\" style=\"width:100%;height:auto;max-width:", kWidth, "px\" viewBox=\"0 0 ", kWidth, " ",
                        height, "\" font-family=\"sans-serif\" fill=\"#222222\">\n");
  Box(out, 0, 0, kWidth, height, "#ffffff");
  Text(out, kLeft, 28, "start", 17, text.title);
  Legend(out);
  Layers(out, answer.step);
  Bars(out, by_drives);
  double y = kBarsBottom + 62;
  for (const std::string& note : text.notes) {
    Text(out, kLeft, y, "start", 12, note);
    y += kNoteHeight;
  }
  return out + "</svg>\n";
}

std::string PlanHtml(const PlanAnswer& answer, const std::vector<PlanAnswer>& by_drives, const ChartText& text) {
  std::string out = Cat(
      "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" "
      "content=\"width=device-width,initial-scale=1\">\n<title>",
      EscapeXml(text.title), "</title>\n<style>", kStyle, "</style>\n<body>\n<h1>", EscapeXml(text.title), "</h1>\n");
  out += Cat("<div class=\"wide\">", PlanSvg(answer, by_drives, {}), "</div>\n");
  if (!text.alternatives.empty()) out += "<h2>What would help</h2>\n" + AlternativesHtml(text.alternatives);
  out += "<h2>Simulated for</h2>\n<ul>\n";
  for (const std::string& note : text.notes) out += Cat("<li>", EscapeXml(note), "</li>\n");
  return out + "</ul>\n</body>\n</html>\n";
}

}  // namespace deltafin::simulate
