// What the command prints: tables for people, JSON for programs.
#pragma once

#include <nlohmann/json.hpp>

#include <string>
#include <string_view>
#include <vector>

namespace penstock::command {

// Keys stay in the order in which they were written.
using Json = nlohmann::ordered_json;

// Columns, each as wide as its widest cell; the last one is never padded.
class Table {
 public:
  explicit Table(std::vector<std::string> head) : rows_{std::move(head)} {}
  // Control characters in cells are escaped: texts may be those of plugins.
  void add(std::vector<std::string> row);
  std::string text() const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

// To standard output, with a newline at the end. Control characters but line ends are escaped, here
// and below.
void print(std::string_view text);
void print_json(const Json& json);
// "penstock: MESSAGE" to standard error; returns the exit status 1.
int fail(std::string_view message);

}  // namespace penstock::command
