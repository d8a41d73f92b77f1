// The tables that `penstock plan` reads: profiles of models and costs of methods.
#pragma once

#include "core/base/status.hpp"

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace penstock::command {

struct TableRow {
  size_t line = 0;  // line number in the file, from 1
  std::vector<std::string> cells;
};

// A table of cells between commas. A line `# key = value` before the columns is a setting; any
// other line that begins with # is a comment.
struct TableFile {
  std::string name;  // name of the file, for messages
  std::map<std::string, std::string> settings;
  std::vector<TableRow> rows;

  // Parses a table. The first line that is no comment must list `columns`. INVALID_ARGUMENT, with
  // file and line, if that line is missing or different, or if a row has another number of cells.
  static Result<TableFile> parse(std::string_view text, std::string name,
                                 const std::vector<std::string>& columns);
  // Reads a number from 0 to `most`. INVALID_ARGUMENT names the place, the column and the text.
  Result<double> number(const TableRow& row, size_t column, std::string_view what,
                        double most) const;
  // Reads the number of a setting; NOT_FOUND if the setting is missing.
  Result<double> setting(const std::string& key, double most) const;
};

// The greatest time in a table or on the command line, in the unit used there. It is far above any
// real time, and sums and products of such numbers stay finite.
inline constexpr double kMostMs = 1e9;

// Reads the whole text as a number of at least 0. False if the text is no such number.
bool read_number(std::string_view text, double& value);

// Returns the text of a plain file of at most 16 MiB. `what`: the expected content, which the
// message of NOT_FOUND names.
Result<std::string> read_table_file(const std::string& path, std::string_view what);

// The text of a table that is compiled in, such as "resnet50.csv"; empty if the name is unknown.
std::string_view shipped_table(std::string_view file_name);
// The names of all shipped profiles: "bert-base", ...
std::vector<std::string> shipped_models();

}  // namespace penstock::command
