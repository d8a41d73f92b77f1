// Tables with a head, as `penstock plan` reads them: profiles of models and costs of methods.
#pragma once

#include "core/base/status.hpp"

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace penstock::command {

struct TableRow {
  size_t line = 0;  // of the file, from 1
  std::vector<std::string> cells;
};

// Lines of cells between commas. `# key = value` in front of the columns gives a setting, any other
// line that begins with # is a comment.
struct TableFile {
  std::string name;  // of the file, for messages
  std::map<std::string, std::string> settings;
  std::vector<TableRow> rows;

  // INVALID_ARGUMENT, naming file and line: a row of other columns than `columns`, which the first
  // line that is no comment must spell, or none.
  static Result<TableFile> parse(std::string_view text, std::string name,
                                 const std::vector<std::string>& columns);
  // A number from 0 to `most`. INVALID_ARGUMENT names the place, the column, the text.
  Result<double> number(const TableRow& row, size_t column, std::string_view what,
                        double most) const;
  // The same of a setting; NOT_FOUND where it is missing.
  Result<double> setting(const std::string& key, double most) const;
};

// Of a time in a table or on the command line, in its unit: far beyond what anything takes, and
// sums and products of such numbers stay finite.
inline constexpr double kMostMs = 1e9;

// A number of at least 0 that is the whole text; false where it is none.
bool read_number(std::string_view text, double& value);

// The text of a plain file of at most 16 MiB. NOT_FOUND names `what` it should be.
Result<std::string> read_table_file(const std::string& path, std::string_view what);

// What is compiled in: "resnet50.csv", ...; empty where there is none of that name.
std::string_view shipped_table(std::string_view file_name);
// All names of shipped profiles: "bert-base", ...
std::vector<std::string> shipped_models();

}  // namespace penstock::command
