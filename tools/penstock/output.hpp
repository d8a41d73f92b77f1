// The output of the command: tables for people, JSON for programs.
#pragma once

#include <nlohmann/json.hpp>

#include <string>
#include <string_view>
#include <vector>

namespace penstock::command {

// Keys stay in the order in which they were written.
using Json = nlohmann::ordered_json;

// A table whose columns are as wide as their widest cell. The last column is never padded.
class Table {
 public:
  explicit Table(std::vector<std::string> head) : rows_{std::move(head)} {}
  // Escapes control characters in cells, because plugins may have written the texts.
  void add(std::vector<std::string> row);
  std::string text() const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

// Prints to standard output, with a newline at the end. print, print_json and fail escape control
// characters except line ends.
void print(std::string_view text);
void print_json(const Json& json);
// Prints "penstock: MESSAGE" to standard error and returns the exit status 1.
int fail(std::string_view message);

}  // namespace penstock::command
