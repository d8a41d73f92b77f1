// [[rule]] and [runtime].
#include "core/config/glob.hpp"
#include "core/config/reader.hpp"
#include "core/tensor/dtype.hpp"

#include <algorithm>
#include <filesystem>

namespace penstock {

namespace {

// An integer, or { min = , max = } with one of the two at least.
Result<Range> read_range(const Node& node, const std::string& key) {
  if (std::holds_alternative<int64_t>(node.value)) {
    PENSTOCK_ASSIGN(const uint64_t exact, read_count(node, key));
    return Range{exact, exact};
  }
  const NodeTable* table = node.table();
  if (table == nullptr || table->empty()) {
    return unexpected(node, key,
                      "an integer, or a table { min = , max = } with one of them at least");
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

}  // namespace

Status ConfigReader::read_rules(const Node& node) {
  const NodeArray* array = node.array();
  if (array == nullptr) return unexpected(node, "rule", "tables [[rule]]");
  for (const Node& entry : *array) {
    const std::string title = fmt::format("rule {}", config_.base_.rules.size() + 1);
    PENSTOCK_ASSIGN(Rule rule, read_rule(entry, title));
    config_.base_.rules.push_back(std::move(rule));
  }
  return {};
}

Result<Rule> ConfigReader::read_rule(const Node& node, const std::string& title) {
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

Result<Match> ConfigReader::read_match(const Node& node, const std::string& title) {
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

// An override of an instance that the rule's gradients never get would do nothing, in silence.
Status ConfigReader::check_rule_overrides(size_t index) const {
  const Rule& rule = config_.base_.rules[index];
  for (const auto& [key, settings] : rule.overrides) {
    bool used = settings.empty();
    std::string in_use;
    for (uint64_t stage : config_.stages()) {
      const Scheme scheme = config_.at_step(stage);
      const Choice choice = scheme.choice_of(index + 1);
      const std::string derived = fmt::format("{}@rule{}", key.second, index + 1);
      if (key.first == Kind::memory) {
        used |= choice.memory == derived;
        in_use = choice.memory;
      } else {
        used |= std::find(choice.candidates.begin(), choice.candidates.end(), derived) !=
                choice.candidates.end();
        in_use = choice.compressor;
      }
    }
    if (used) continue;
    return invalid_argument(
        "{}: rule {} sets options of the {} \"{}\", but what it matches gets \"{}\"; name \"{}\" "
        "in the rule or set options of \"{}\"",
        settings.begin()->second.where.text(), index + 1, kind_name(key.first), key.second, in_use,
        key.second, in_use);
  }
  return {};
}

Status ConfigReader::only_of_the_run(const Node& node, std::string_view table) const {
  if (allow_runtime_) return {};
  return invalid_argument(
      "{}: [{}] belongs in the configuration of the run, not in the scheme of one set",
      node.where.text(), table);
}

Status ConfigReader::read_runtime(const Node& node) {
  PENSTOCK_TRY(only_of_the_run(node, "runtime"));
  PENSTOCK_ASSIGN(const NodeTable* table, read_table(node, "runtime"));
  PENSTOCK_TRY(check_keys(*table, "runtime", runtime_keys().names()));
  RuntimeConfig& runtime = config_.runtime_;
  for (const ConfigKey& key : runtime_keys().keys) {
    const Node* value = find_key(*table, key.name);
    if (value == nullptr) continue;
    const std::string full = fmt::format("runtime.{}", key.name);
    PENSTOCK_TRY(read_key(key, *value, full, runtime));
    config_.given_.emplace(key.name);
    if (key.name == "plugin_path")
      for (std::string& path : runtime.plugin_path) {
        if (path.empty()) return unexpected(*value, full, "paths that are not empty");
        path = (std::filesystem::path(directory_) / path).lexically_normal().string();
      }
  }
  const Node* heartbeat = find_key(*table, "heartbeat_s");
  if (heartbeat == nullptr)
    runtime.heartbeat_s = std::min(5.0, runtime.deadline_s / 4);
  else if (runtime.heartbeat_s >= runtime.deadline_s)
    return unexpected(*heartbeat, "runtime.heartbeat_s",
                      fmt::format("less than deadline_s, which is {}", runtime.deadline_s));
  return {};
}

}  // namespace penstock
