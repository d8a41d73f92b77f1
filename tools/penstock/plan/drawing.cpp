#include "tools/penstock/plan/drawing.hpp"

#include "core/base/printable.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace penstock::command {

std::string escaped(std::string_view text) {
  std::string safe;
  for (const char c : printable(text)) {
    switch (c) {
      case '<':
        safe += "&lt;";
        break;
      case '>':
        safe += "&gt;";
        break;
      case '&':
        safe += "&amp;";
        break;
      case '"':
        safe += "&quot;";
        break;
      default:
        safe += c;
    }
  }
  return safe;
}

std::string short_rate(double bits) {
  constexpr std::pair<double, char> kUnits[] = {{1e12, 'T'}, {1e9, 'G'}, {1e6, 'M'}, {1e3, 'k'}};
  for (const auto& [factor, unit] : kUnits)
    if (bits >= factor * 0.9995) return fmt::format("{:.3g}{}", bits / factor, unit);
  return fmt::format("{:.3g}", bits);
}

double Scale::operator()(double value) const {
  const double share = is_logarithmic ? std::log(value / first) / std::log(last / first)
                                      : (value - first) / (last - first);
  return from_place + share * (to_place - from_place);
}

std::vector<double> Scale::ticks(int about) const {
  std::vector<double> values;
  if (is_logarithmic) {
    for (double decade = std::pow(10, std::floor(std::log10(first))); decade <= last; decade *= 10)
      for (const double digit : {1, 2, 5})
        if (decade * digit >= first && decade * digit <= last) values.push_back(decade * digit);
    return values;
  }
  const double rough = (last - first) / about;
  const double decade = std::pow(10, std::floor(std::log10(rough)));
  double step = 10 * decade;
  for (const double digit : {5, 2, 1})
    if (digit * decade >= rough) step = digit * decade;
  for (double value = std::ceil(first / step) * step; value <= last; value += step)
    values.push_back(value);
  return values;
}

void Drawing::line(std::string_view style, double x1, double y1, double x2, double y2) {
  shapes_ +=
      fmt::format("<line class=\"{}\" x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\"/>\n",
                  style, x1, y1, x2, y2);
}

void Drawing::text(std::string_view style, double x, double y, std::string_view anchor,
                   std::string_view words) {
  shapes_ +=
      fmt::format("<text class=\"{}\" x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\">{}</text>\n",
                  style, x, y, anchor, escaped(words));
}

void Drawing::box(std::string_view style, double x, double y, double width, double height,
                  std::string_view title) {
  shapes_ += fmt::format(
      "<rect class=\"{}\" x=\"{:.2f}\" y=\"{:.1f}\" width=\"{:.2f}\" height=\"{:.1f}\">"
      "<title>{}</title></rect>\n",
      style, x, y, width, height, escaped(title));
}

void Drawing::filled_box(std::string_view colour, double x, double y, double width, double height,
                         std::string_view title) {
  shapes_ += fmt::format(
      "<rect style=\"fill: {}\" x=\"{:.2f}\" y=\"{:.1f}\" width=\"{:.2f}\" height=\"{:.1f}\">"
      "<title>{}</title></rect>\n",
      colour, x, y, width, height, escaped(title));
}

void Drawing::curve(std::string_view style, std::string_view colour,
                    const std::vector<std::pair<double, double>>& points, std::string_view title) {
  std::string places;
  for (const auto& [x, y] : points)
    places += fmt::format("{}{:.1f},{:.1f}", places.empty() ? "" : " ", x, y);
  const std::string stroke = colour.empty() ? "" : fmt::format(" style=\"stroke: {}\"", colour);
  shapes_ += fmt::format("<polyline class=\"{}\"{} points=\"{}\"><title>{}</title></polyline>\n",
                         style, stroke, places, escaped(title));
}

std::string Drawing::svg() const {
  return fmt::format("<svg viewBox=\"0 0 {:.0f} {:.0f}\" role=\"img\">\n{}</svg>\n", width_,
                     height_, shapes_);
}

}  // namespace penstock::command
