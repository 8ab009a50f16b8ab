// svg_plot: three kinds of plots as SVG elements to stand in an HTML page.
//
// Colours are CSS variables of the page (--c0 ... --c10, --ink, --soft, --grid), so light and dark are the page's
// business. Every mark has a <title> that a browser shows. Pure functions; texts are escaped; values that are not
// finite count as 0.
#pragma once

#include <string>
#include <vector>

#include "base/xml_text.h"

namespace deltafin {

inline constexpr size_t kPlotColours = 11;

// 3 digits: "0.927", "26.1", "1,240".
std::string ShortNumber(double value);

// Marks with whiskers, one group a category, series side by side.
struct IntervalPlot {
  struct Mark {
    double low = 0, middle = 0, high = 0;  // middle 0: nothing
  };
  struct Line {
    std::string name;
    bool hollow = false;
    size_t colour = 0;
    std::vector<Mark> marks;  // one a category
  };
  std::string label, unit;
  std::vector<std::string> categories;
  std::vector<Line> lines;
};
std::string ToSvg(const IntervalPlot& plot);

// Curves over time.
struct CurvePlot {
  struct Point {
    double x = 0, y = 0;
  };
  struct Curve {
    std::string name;
    std::vector<Point> points;  // a step from each to the next
  };
  struct Marker {
    double x = 0;
    std::string name;
  };
  std::string label, x_unit, y_unit;
  std::vector<Curve> curves;
  std::vector<Marker> markers;
};
std::string ToSvg(const CurvePlot& plot);

// Bars of parts, one below the other.
struct StackPlot {
  struct Bar {
    std::string name;
    std::vector<double> parts;  // one a name of StackPlot::parts
  };
  std::string label, unit;
  std::vector<std::string> parts;
  std::vector<Bar> bars;
};
std::string ToSvg(const StackPlot& plot);

// Squares of colour with names, as HTML.
std::string LegendHtml(const std::vector<std::string>& names);

}  // namespace deltafin
