#include "core/config/rule.hpp"

#include "core/config/glob.hpp"
#include "core/config/keys.hpp"
#include "core/tensor/dtype.hpp"

namespace penstock {

namespace {

// An integer, or { min = , max = } with one bound or two.
Result<Range> read_range(const Node& node, const std::string& key) {
  if (std::holds_alternative<int64_t>(node.value)) {
    PENSTOCK_ASSIGN(const uint64_t exact, read_count(node, key));
    return Range{exact, exact};
  }
  const NodeTable* table = node.table();
  if (table == nullptr || table->empty()) {
    return unexpected(node, key,
                      "an integer, or a table { min = , max = } that has min, max or both");
  }
  PENSTOCK_TRY(check_keys(*table, key, {"min", "max"}));
  Range range;
  if (const Node* minimum = find_key(*table, "min")) {
    PENSTOCK_ASSIGN(range.minimum, read_count(*minimum, key + ".min"));
  }
  if (const Node* maximum = find_key(*table, "max")) {
    PENSTOCK_ASSIGN(range.maximum, read_count(*maximum, key + ".max"));
  }
  if (range.minimum > range.maximum) {
    return invalid_argument("{}: {} has min {} above max {}, so that nothing can match",
                            node.where.text(), key, range.minimum, range.maximum);
  }
  return range;
}

Result<Match> read_match(const Node& node, const std::string& title) {
  PENSTOCK_ASSIGN(const NodeTable* table, read_table(node, title));
  PENSTOCK_TRY(check_keys(*table, title, match_keys().names()));
  Match match;
  for (const auto& [key, value] : *table) {
    const std::string full = title + "." + key;
    if (key == "name") {
      PENSTOCK_ASSIGN(match.names, read_texts(value, full));
      for (const std::string& pattern : match.names) {
        PENSTOCK_TRY(
            check_glob(pattern).with_context(fmt::format("{}: {}", value.where.text(), full)));
      }
    }
    if (key == "dims") {
      PENSTOCK_ASSIGN(match.dims, read_range(value, full));
    }
    if (key == "elements") {
      PENSTOCK_ASSIGN(match.elements, read_range(value, full));
    }
    if (key == "dtype") {
      PENSTOCK_ASSIGN(const std::string name,
                      read_one_of(value, full, {kDtypeNames.begin() + 1, kDtypeNames.end()}));
      match.dtype = dtype_from_name(name);
    }
  }
  return match;
}

}  // namespace

Status read_options(Kind kind, const Node& node, const std::string& prefix, Overrides& options) {
  PENSTOCK_ASSIGN(const NodeTable* instances, read_table(node, prefix));
  for (const auto& [name, values] : *instances) {
    const std::string instance = prefix + "." + name;
    if (!values.table()) {
      return unexpected(
          values, instance,
          fmt::format("KIND.INSTANCE.OPTION = VALUE, for example {}.NAME.{}", prefix, name));
    }
    for (const auto& [option, value] : *values.table()) {
      const std::string full = instance + "." + option;
      if (option == "plugin") {
        return invalid_argument(
            "{}: {} cannot be changed here: make another instance [{}.NAME] with that "
            "plugin and name it instead",
            value.where.text(), full, kind_name(kind));
      }
      PENSTOCK_ASSIGN((options[{kind, name}][option]), read_setting(value, full));
    }
  }
  return {};
}

Result<Rule> read_rule(const Node& node, const std::string& title) {
  PENSTOCK_ASSIGN(const NodeTable* table, read_table(node, title));
  PENSTOCK_TRY(check_keys(*table, title, rule_keys().names()));
  Rule rule;
  rule.where = node.where;
  const Node* match = find_key(*table, "match");
  if (match == nullptr) {
    return invalid_argument("{}: {} lacks match, expected for example match = {{ dims = 1 }}",
                            node.where.text(), title);
  }
  PENSTOCK_ASSIGN(rule.match, read_match(*match, title + ".match"));
  for (const auto& [key, value] : *table) {
    const std::string full = title + "." + key;
    if (key == "compressor") {
      PENSTOCK_ASSIGN(rule.compressor, read_name(value, full));
    }
    if (key == "memory") {
      PENSTOCK_ASSIGN(rule.memory, read_name(value, full));
    }
    if (key == "candidates") {
      PENSTOCK_ASSIGN(rule.candidates, read_candidates(value, full));
    }
    if (key != "options") continue;
    PENSTOCK_ASSIGN(const NodeTable* kinds, read_table(value, full));
    for (const auto& [kind, instances] : *kinds) {
      if (kind == "collective" || kind == "scheduler") {
        return invalid_argument(
            "{}: {} sets options of a {}, which all gradients share; expected options of a "
            "compressor or a memory (others belong in [{}.NAME])",
            instances.where.text(), full, kind, kind);
      }
    }
    PENSTOCK_TRY(check_keys(*kinds, full, {"compressor", "memory"}));
    for (const auto& [kind, instances] : *kinds) {
      PENSTOCK_TRY(read_options(*kind_from_name(kind), instances, kind, rule.overrides));
    }
  }
  if (rule.compressor.empty() && rule.memory.empty() && rule.candidates.empty() &&
      rule.overrides.empty()) {
    return invalid_argument(
        "{}: {} sets nothing, expected compressor, memory, candidates or options",
        node.where.text(), title);
  }
  return rule;
}

}  // namespace penstock
