#include "bench/svg_plot.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "base/result.h"

namespace deltafin {
namespace {

constexpr double kWidth = 860, kLeft = 64, kRight = 16, kTop = 14;

double Finite(double value) { return std::isfinite(value) ? value : 0; }

std::string Num(double value) {
  char text[40];
  std::snprintf(text, sizeof text, "%.1f", Finite(value));
  return text;
}

std::string Colour(size_t index) { return Cat("var(--c", index % kPlotColours, ")"); }

// The step of an axis from 0 to `top` with 4 to 8 lines: 1, 2 or 5 times a power of ten.
double NiceStep(double top) {
  if (!(top > 0)) return 1;
  const double power = std::pow(10, std::floor(std::log10(top / 4)));
  for (const double factor : {1.0, 2.0, 5.0})
    if (top / (power * factor) <= 8) return power * factor;
  return power * 10;
}

std::string Text(double x, double y, const char* kind, const std::string& text) {
  return Cat("<text x=\"", Num(x), "\" y=\"", Num(y), "\" class=\"", kind, "\">", EscapeXml(text), "</text>");
}

std::string LineOf(double x1, double y1, double x2, double y2, const std::string& style) {
  return Cat("<line x1=\"", Num(x1), "\" y1=\"", Num(y1), "\" x2=\"", Num(x2), "\" y2=\"", Num(y2), "\" ", style, "/>");
}

std::string Open(double height, const std::string& label) {
  return Cat("<svg viewBox=\"0 0 ", Num(kWidth), " ", Num(height), "\" role=\"img\" aria-label=\"", EscapeXml(label),
             "\">");
}

// Maps values to places along a side.
struct Axis {
  double top = 1;  // largest value
  double from = 0, to = 0;
  double at(double value) const { return from + (to - from) * std::clamp(Finite(value) / top, 0.0, 1.0); }
};

Axis AxisTo(double most, double from, double to) {
  const double step = NiceStep(most);
  return {std::max(step, std::ceil(most / step * (1 - 1e-9)) * step), from, to};
}

// Lines across the plot with their values at the left.
std::string GridY(const Axis& y, const std::string& unit) {
  std::string out;
  for (double value = 0; value <= y.top * (1 + 1e-9); value += NiceStep(y.top)) {
    out += LineOf(kLeft, y.at(value), kWidth - kRight, y.at(value), "class=\"grid\"");
    out += Text(kLeft - 8, y.at(value) + 4, "tick end", ShortNumber(value));
  }
  return out + Text(4, kTop - 2, "tick", unit);
}

std::string TicksX(const Axis& x, double bottom, const std::string& unit) {
  std::string out;
  for (double value = 0; value <= x.top * (1 + 1e-9); value += NiceStep(x.top))
    out += Text(x.at(value), bottom + 18, "tick mid", ShortNumber(value));
  return out + Text(kWidth - kRight, bottom + 34, "tick end", unit);
}

}  // namespace

std::string ShortNumber(double value) {
  value = Finite(value);
  const double size = std::abs(value);
  char text[40];
  if (size >= 999.5) {
    std::snprintf(text, sizeof text, "%.0f", value);
    std::string digits = text;
    for (auto at = static_cast<std::ptrdiff_t>(digits.size()) - 3; at > (value < 0 ? 1 : 0); at -= 3)
      digits.insert(static_cast<size_t>(at), 1, ',');
    return digits;
  }
  std::snprintf(text, sizeof text, "%.*f", size >= 99.95 ? 0 : size >= 9.995 ? 1 : size >= 0.9995 ? 2 : 3, value);
  std::string out = text;
  if (out.find('.') != std::string::npos) {
    while (out.back() == '0') out.pop_back();
    if (out.back() == '.') out.pop_back();
  }
  return out;
}

std::string ToSvg(const IntervalPlot& plot) {
  constexpr double kHeight = 300, kBottom = kHeight - 36;
  double most = 0;
  for (const auto& line : plot.lines)
    for (const auto& mark : line.marks) most = std::max({most, Finite(mark.high), Finite(mark.middle)});
  const Axis y = AxisTo(most, kBottom, kTop + 8);
  std::string out = Open(kHeight, plot.label) + GridY(y, plot.unit);
  const double group = (kWidth - kLeft - kRight) / static_cast<double>(std::max<size_t>(1, plot.categories.size()));
  const double step = std::min(34.0, group / static_cast<double>(plot.lines.size() + 1));
  for (size_t c = 0; c < plot.categories.size(); ++c) {
    const double middle = kLeft + group * (static_cast<double>(c) + 0.5);
    out += Text(middle, kBottom + 22, "tick mid", plot.categories[c]);
    for (size_t l = 0; l < plot.lines.size(); ++l) {
      const auto& line = plot.lines[l];
      if (c >= line.marks.size() || line.marks[c].middle <= 0) continue;
      const auto& mark = line.marks[c];
      const double x = middle + step * (static_cast<double>(l) - static_cast<double>(plot.lines.size() - 1) / 2);
      const std::string stroke = Cat("stroke=\"", Colour(line.colour), "\" stroke-width=\"2\"");
      out +=
          Cat("<g><title>", EscapeXml(line.name), ", ", EscapeXml(plot.categories[c]), ": ", ShortNumber(mark.middle),
              " (", ShortNumber(mark.low), " to ", ShortNumber(mark.high), ") ", EscapeXml(plot.unit), "</title>");
      out += LineOf(x, y.at(mark.low), x, y.at(mark.high), stroke);
      out += LineOf(x - 5, y.at(mark.low), x + 5, y.at(mark.low), stroke) +
             LineOf(x - 5, y.at(mark.high), x + 5, y.at(mark.high), stroke);
      out += Cat("<circle cx=\"", Num(x), "\" cy=\"", Num(y.at(mark.middle)), "\" r=\"5\" ", stroke, " fill=\"",
                 line.hollow ? "var(--paper)" : Colour(line.colour), "\"/></g>");
    }
  }
  return out + "</svg>";
}

std::string ToSvg(const CurvePlot& plot) {
  constexpr double kHeight = 260, kBottom = kHeight - 44;
  double most_x = 0, most_y = 0;
  for (const auto& curve : plot.curves)
    for (const auto& point : curve.points) {
      most_x = std::max(most_x, Finite(point.x));
      most_y = std::max(most_y, Finite(point.y));
    }
  const Axis x{most_x > 0 ? most_x : 1, kLeft, kWidth - kRight};
  const Axis y = AxisTo(most_y, kBottom, kTop + 8);
  std::string out = Open(kHeight, plot.label) + GridY(y, plot.y_unit) + TicksX(x, kBottom, plot.x_unit);
  for (const auto& marker : plot.markers) {
    if (marker.x < 0 || marker.x > x.top) continue;
    const bool right = marker.x > x.top * 0.8;
    out += LineOf(x.at(marker.x), kTop, x.at(marker.x), kBottom, "class=\"marker\"");
    out += Text(x.at(marker.x) + (right ? -4 : 4), kTop + 8, right ? "tick end" : "tick", marker.name);
  }
  for (size_t c = 0; c < plot.curves.size(); ++c) {
    const auto& curve = plot.curves[c];
    if (curve.points.empty()) continue;
    std::string path = Cat("M", Num(x.at(curve.points[0].x)), " ", Num(y.at(curve.points[0].y)));
    for (size_t i = 1; i < curve.points.size(); ++i)
      path += Cat("H", Num(x.at(curve.points[i].x)), "V", Num(y.at(curve.points[i].y)));
    out += Cat("<path d=\"", path, "\" fill=\"none\" stroke=\"", Colour(c), "\" stroke-width=\"1.6\"><title>",
               EscapeXml(curve.name), "</title></path>");
  }
  return out + "</svg>";
}

std::string ToSvg(const StackPlot& plot) {
  constexpr double kBar = 22, kStep = 34, kNames = 190;
  const double bottom = kTop + kStep * static_cast<double>(plot.bars.size());
  double most = 0;
  for (const auto& bar : plot.bars) {
    double sum = 0;
    for (const double part : bar.parts) sum += Finite(part);
    most = std::max(most, sum);
  }
  Axis x = AxisTo(most, kNames, kWidth - kRight - 60);
  x.top = most > 0 ? most : 1;
  std::string out = Open(bottom + 40, plot.label);
  for (double value = 0; value <= x.top * (1 + 1e-9); value += NiceStep(x.top))
    out += LineOf(x.at(value), kTop, x.at(value), bottom, "class=\"grid\"");
  out += TicksX(x, bottom, plot.unit);
  for (size_t b = 0; b < plot.bars.size(); ++b) {
    const auto& bar = plot.bars[b];
    const double y = kTop + kStep * static_cast<double>(b) + (kStep - kBar) / 2;
    out += Text(kNames - 10, y + kBar / 2 + 4, "name end", bar.name);
    double sum = 0;
    for (size_t p = 0; p < bar.parts.size() && p < plot.parts.size(); ++p) {
      const double part = std::max(0.0, Finite(bar.parts[p]));
      const double from = x.at(sum), to = x.at(sum + part);
      sum += part;
      if (to - from < 0.05) continue;
      out += Cat("<rect x=\"", Num(from), "\" y=\"", Num(y), "\" width=\"", Num(to - from), "\" height=\"", Num(kBar),
                 "\" fill=\"", Colour(p), "\"><title>", EscapeXml(bar.name), ", ", EscapeXml(plot.parts[p]), ": ",
                 ShortNumber(part), " ", EscapeXml(plot.unit), "</title></rect>");
    }
    out += Text(x.at(sum) + 6, y + kBar / 2 + 4, "name", ShortNumber(sum));
  }
  return out + "</svg>";
}

std::string LegendHtml(const std::vector<std::string>& names) {
  std::string out = "<p class=\"legend\">";
  for (size_t i = 0; i < names.size(); ++i)
    out += Cat("<span><i style=\"background:", Colour(i), "\"></i>", EscapeXml(names[i]), "</span> ");
  return out + "</p>";
}

}  // namespace deltafin
