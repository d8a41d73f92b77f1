// A TOML document as a plain tree with file positions. Only tree.cpp knows toml++.
#pragma once

#include "core/config/config.hpp"

#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace penstock {

struct Node;
struct NodeEntry;
using NodeTable = std::vector<NodeEntry>;  // in order of the file
using NodeArray = std::vector<Node>;
struct OtherValue {
  std::string type;  // "date", "time", "date-time": legal TOML that no key of Penstock takes
};

struct Node {
  std::variant<bool, int64_t, double, std::string, OtherValue, NodeArray, NodeTable> value;
  Location where;

  const NodeTable* table() const;
  const NodeArray* array() const;
  const std::string* text() const;
  // For messages: `the number 3`, `"abc"`, `a table`.
  std::string described() const;
};

struct NodeEntry {
  std::string key;
  Node node;
};

inline const NodeTable* Node::table() const {
  return std::get_if<NodeTable>(&value);
}
inline const NodeArray* Node::array() const {
  return std::get_if<NodeArray>(&value);
}
inline const std::string* Node::text() const {
  return std::get_if<std::string>(&value);
}

// INVALID_ARGUMENT with file, line and column for a syntax error.
Result<Node> parse_toml(std::string_view text, const std::string& file);

// ---- Reading typed values; messages name `key` (dotted, as the user would write it) ----

// INVALID_ARGUMENT "FILE:LINE:COLUMN: KEY is VALUE, expected WHAT".
Status unexpected(const Node& node, std::string_view key, std::string_view expected);

Result<std::string> read_text(const Node& node, std::string_view key);
Result<bool> read_bool(const Node& node, std::string_view key);
Result<uint64_t> read_count(const Node& node, std::string_view key, uint64_t minimum = 0);
Result<double> read_positive(const Node& node, std::string_view key);
Result<const NodeTable*> read_table(const Node& node, std::string_view key);
// One text or an array of texts.
Result<std::vector<std::string>> read_texts(const Node& node, std::string_view key);
// One of `known`; the message suggests the nearest.
Result<std::string> read_one_of(const Node& node, std::string_view key,
                                const std::vector<std::string>& known);
Result<Setting> read_setting(const Node& node, std::string_view key);
// A legal instance name at `key`.
Result<std::string> read_name(const Node& node, std::string_view key);

// INVALID_ARGUMENT for a key of `table` that is not in `known`. `prefix` is the table's dotted
// name, or empty.
Status check_keys(const NodeTable& table, std::string_view prefix,
                  const std::vector<std::string>& known);
const Node* find_key(const NodeTable& table, std::string_view key);

// Letters, digits, '-' and '_': the characters of an instance's name.
bool is_instance_name(std::string_view name);

}  // namespace penstock
