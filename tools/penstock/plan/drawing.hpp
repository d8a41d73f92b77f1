// Drawings of a page, as SVG text.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace penstock::command {

// Escapes < > & and double quotes for XML, and makes control characters printable.
std::string escaped(std::string_view text);

// Writes bits per second in little space: "10M", "2.5G".
std::string short_rate(double bits_per_second);

// Maps values to places on the page, evenly or by their logarithms.
struct Scale {
  double first, last;  // values, first < last; above 0 if logarithmic
  double from_place, to_place;
  bool is_logarithmic;

  double operator()(double value) const;
  // Returns about `about` round values within the scale; 1, 2 and 5 of each decade if logarithmic.
  std::vector<double> ticks(int about) const;
};

class Drawing {
 public:
  Drawing(double width, double height) : width_(width), height_(height) {}

  void line(std::string_view style, double x1, double y1, double x2, double y2);
  // `anchor`: start, middle, end.
  void text(std::string_view style, double x, double y, std::string_view anchor,
            std::string_view words);
  // `title` appears when the reader points at the box.
  void box(std::string_view style, double x, double y, double width, double height,
           std::string_view title);
  void filled_box(std::string_view colour, double x, double y, double width, double height,
                  std::string_view title);
  // `colour` may be empty if the style has a colour.
  void curve(std::string_view style, std::string_view colour,
             const std::vector<std::pair<double, double>>& points, std::string_view title);
  std::string svg() const;

 private:
  double width_, height_;
  std::string shapes_;
};

}  // namespace penstock::command
