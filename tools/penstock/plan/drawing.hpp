// SVG inside a page, as text.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace penstock::command {

// As XML wants it: < > & and quotes, and no control characters.
std::string escaped(std::string_view text);

// "10M", "2.5G": bits per second, where there is little room.
std::string short_rate(double bits_per_second);

// From values to places on the page, evenly or by their logarithms.
struct Scale {
  double first, last;  // values, first < last; above 0 where logarithmic
  double from_place, to_place;
  bool is_logarithmic;

  double operator()(double value) const;
  // Round values within the scale, about so many; on a logarithmic one 1, 2 and 5 of each decade.
  std::vector<double> ticks(int about) const;
};

class Drawing {
 public:
  Drawing(double width, double height) : width_(width), height_(height) {}

  void line(std::string_view style, double x1, double y1, double x2, double y2);
  // `anchor`: start, middle, end.
  void text(std::string_view style, double x, double y, std::string_view anchor,
            std::string_view words);
  // `title` shows when one points at it.
  void box(std::string_view style, double x, double y, double width, double height,
           std::string_view title);
  void filled_box(std::string_view colour, double x, double y, double width, double height,
                  std::string_view title);
  // `colour` may be empty where the style has one.
  void curve(std::string_view style, std::string_view colour,
             const std::vector<std::pair<double, double>>& points, std::string_view title);
  std::string svg() const;

 private:
  double width_, height_;
  std::string shapes_;
};

}  // namespace penstock::command
