#include "tools/penstock/output.hpp"

#include "core/base/printable.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

namespace penstock::command {

namespace {

// The number of columns of a text. Continuation bytes of UTF-8 take no column.
size_t columns(std::string_view text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

}  // namespace

std::string Table::text() const {
  std::vector<size_t> widths;
  for (const auto& row : rows_) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], columns(row[i]));
  }
  std::string text;
  for (const auto& row : rows_) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      line += row[i];
      if (i + 1 < row.size()) line += std::string(widths[i] - columns(row[i]) + 2, ' ');
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  if (!text.empty()) text.pop_back();
  return text;
}

void Table::add(std::vector<std::string> row) {
  for (std::string& cell : row) cell = printable(cell);
  rows_.push_back(std::move(row));
}

void print(std::string_view text) {
  fmt::print("{}\n", printable_lines(text));
  std::fflush(stdout);
}

void print_json(const Json& json) {
  // Texts from plugins and paths may be invalid UTF-8 and may contain terminal control characters.
  print(json.dump(2, ' ', true, Json::error_handler_t::replace));
}

int fail(std::string_view message) {
  std::fflush(stdout);
  fmt::print(stderr, "penstock: {}\n", printable_lines(message));
  return 1;
}

}  // namespace penstock::command
