#include "tools/penstock/plan/tables.hpp"

#include "core/base/read_file.hpp"
#include "tools/penstock/templates.hpp"

#include <fmt/ranges.h>

#include <charconv>
#include <cmath>
#include <filesystem>

namespace penstock::command {

namespace {

constexpr uintmax_t kMostBytes = 16u << 20;
constexpr std::string_view kCosts = "costs.csv";
constexpr std::string_view kEnding = ".csv";

std::string_view trimmed(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t\r");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\r") - first + 1);
}

std::vector<std::string> cells_of(std::string_view line) {
  std::vector<std::string> cells;
  for (size_t at = 0; at <= line.size();) {
    const size_t end = std::min(line.find(',', at), line.size());
    cells.emplace_back(trimmed(line.substr(at, end - at)));
    at = end + 1;
  }
  return cells;
}

// Reads a setting from a comment such as "# forward_ms = 26.5"; ignores other comments.
void take_setting(std::string_view comment, std::map<std::string, std::string>& settings) {
  const size_t equals = comment.find(" = ");
  if (equals == std::string_view::npos) return;
  const std::string_view key = trimmed(comment.substr(1, equals - 1));
  if (key.empty() || key.find(' ') != std::string_view::npos) return;
  settings[std::string(key)] = trimmed(comment.substr(equals + 3));
}

}  // namespace

bool read_number(std::string_view text, double& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() && std::isfinite(value) &&
         value >= 0;
}

Result<TableFile> TableFile::parse(std::string_view text, std::string name,
                                   const std::vector<std::string>& columns) {
  TableFile table;
  table.name = std::move(name);
  bool has_columns = false;
  size_t number = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line = trimmed(text.substr(at, end - at));
    at = end + 1;
    ++number;
    if (line.empty()) continue;
    if (line.front() == '#') {
      take_setting(line, table.settings);
      continue;
    }
    TableRow row{number, cells_of(line)};
    const bool is_right = has_columns ? row.cells.size() == columns.size() : row.cells == columns;
    if (!is_right)
      return invalid_argument("{}:{}: \"{}\" is not {}, expected {} cells: {}", table.name, number,
                              line, has_columns ? "a row" : "the line of columns", columns.size(),
                              fmt::join(columns, ","));
    if (has_columns) table.rows.push_back(std::move(row));
    has_columns = true;
  }
  if (table.rows.empty())
    return invalid_argument("{}: there is no row, expected lines of {}", table.name,
                            fmt::join(columns, ","));
  return table;
}

Result<double> TableFile::number(const TableRow& row, size_t column, std::string_view what,
                                 double most) const {
  double value = 0;
  if (read_number(row.cells[column], value) && value <= most) return value;
  return invalid_argument("{}:{}: {} of {} is \"{}\", expected a number from 0 to {}", name,
                          row.line, what, row.cells.front(), row.cells[column], most);
}

Result<double> TableFile::setting(const std::string& key, double most) const {
  const auto found = settings.find(key);
  if (found == settings.end())
    return not_found("{}: there is no line \"# {} = NUMBER\" in front of the columns", name, key);
  double value = 0;
  if (read_number(found->second, value) && value <= most) return value;
  return invalid_argument("{}: {} is \"{}\", expected a number from 0 to {}", name, key,
                          found->second, most);
}

Result<std::string> read_table_file(const std::string& path, std::string_view what) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error))
    return not_found("{}: there is no such file, expected {}", path, what);
  return read_whole_file(path, what, kMostBytes);
}

std::string_view shipped_table(std::string_view file_name) {
  for (const Template& file : planning_tables())
    if (file.name == file_name) return file.text;
  return {};
}

std::vector<std::string> shipped_models() {
  std::vector<std::string> names;
  for (const Template& file : planning_tables())
    if (file.name != kCosts)
      names.emplace_back(file.name.substr(0, file.name.size() - kEnding.size()));
  return names;
}

}  // namespace penstock::command
