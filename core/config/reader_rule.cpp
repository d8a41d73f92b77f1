// [[rule]] and [runtime].
#include "core/config/glob.hpp"
#include "core/config/reader.hpp"
#include "core/tensor/dtype.hpp"

#include <algorithm>
#include <filesystem>

namespace penstock {

namespace {

constexpr uint64_t kMostArenaMib = uint64_t{1} << 40;
constexpr double kLeastDeadline = 0.1;     // seconds
constexpr double kLeastHeartbeat = 0.001;  // seconds
// Longer would overflow the microseconds that transports count in long before it meant anything.
constexpr double kYear = 366.0 * 86400;

// Seconds, or 0 for never.
Result<double> read_stall(const Node& node, const std::string& key) {
  if (const int64_t* none = std::get_if<int64_t>(&node.value); none != nullptr && *none == 0)
    return 0.0;
  PENSTOCK_ASSIGN(const double seconds, read_positive(node, key));
  if (seconds < kLeastDeadline || seconds > kYear)
    return unexpected(node, key, fmt::format("0 for never, or {} to a year", kLeastDeadline));
  return seconds;
}

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
  PENSTOCK_TRY(
      check_keys(*table, title, {"match", "compressor", "memory", "candidates", "options"}));
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
  PENSTOCK_TRY(check_keys(*table, title, {"name", "dims", "elements", "dtype"}));
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

Status ConfigReader::read_runtime(const Node& node) {
  if (!allow_runtime_) {
    return invalid_argument(
        "{}: [runtime] belongs in the configuration of the run, not in the scheme of one set",
        node.where.text());
  }
  PENSTOCK_ASSIGN(const NodeTable* table, read_table(node, "runtime"));
  PENSTOCK_TRY(check_keys(
      *table, "runtime",
      {"plugin_path", "allow_insecure_paths", "deterministic", "seed", "deadline_s", "heartbeat_s",
       "stall_warning_s", "busy_limit_s", "nonfinite", "arena_limit_mb", "log_level", "timeline",
       "hash_replicated_every", "code_path", "worker_threads"}));
  RuntimeConfig& runtime = config_.runtime_;
  for (const auto& [key, value] : *table) {
    const std::string full = "runtime." + key;
    if (key == "plugin_path") {
      PENSTOCK_ASSIGN(const std::vector<std::string> paths, read_texts(value, full));
      for (const std::string& path : paths) {
        if (path.empty()) return unexpected(value, full, "paths that are not empty");
        const std::filesystem::path full_path = std::filesystem::path(directory_) / path;
        runtime.plugin_path.push_back(full_path.lexically_normal().string());
      }
    }
    if (key == "allow_insecure_paths") {
      PENSTOCK_ASSIGN(runtime.allow_insecure_paths, read_bool(value, full));
    }
    if (key == "deterministic") {
      PENSTOCK_ASSIGN(runtime.deterministic, read_bool(value, full));
    }
    if (key == "seed") {
      PENSTOCK_ASSIGN(runtime.seed, read_count(value, full));
    }
    if (key == "arena_limit_mb") {
      PENSTOCK_ASSIGN(runtime.arena_limit_mb, read_count(value, full, 1));
      // In bytes and added up, a set's memory must stay within 64 bits.
      if (runtime.arena_limit_mb > kMostArenaMib)
        return unexpected(value, full, fmt::format("at most {}, an exbibyte", kMostArenaMib));
    }
    if (key == "hash_replicated_every") {
      PENSTOCK_ASSIGN(runtime.hash_replicated_every, read_count(value, full));
    }
    if (key == "worker_threads") {
      PENSTOCK_ASSIGN(runtime.worker_threads, read_count(value, full, 1));
      if (runtime.worker_threads > 256)
        return unexpected(value, full, "at most 256, and not more than the cores of this rank");
    }
    if (key == "timeline") {
      PENSTOCK_ASSIGN(runtime.timeline, read_text(value, full));
    }
    if (key == "timeline") config_.timeline_given_ = true;
    if (key == "log_level") {
      PENSTOCK_ASSIGN(runtime.log_level,
                      read_one_of(value, full, {"debug", "info", "warning", "error"}));
    }
    if (key == "code_path") {
      PENSTOCK_ASSIGN(runtime.code_path,
                      read_one_of(value, full, {"auto", "portable", "avx2", "avx512"}));
    }
    if (key == "nonfinite") {
      PENSTOCK_ASSIGN(const std::string mode, read_one_of(value, full, {"void", "strict"}));
      runtime.nonfinite = mode == "strict" ? Nonfinite::strict : Nonfinite::void_bucket;
    }
  }
  return read_deadlines(*table);
}

Status ConfigReader::read_deadlines(const NodeTable& table) {
  RuntimeConfig& runtime = config_.runtime_;
  if (const Node* node = find_key(table, "deadline_s")) {
    PENSTOCK_ASSIGN(runtime.deadline_s, read_positive(*node, "runtime.deadline_s"));
    // Less is no time for a message, and below a microsecond it would count as no deadline.
    if (runtime.deadline_s < kLeastDeadline)
      return unexpected(*node, "runtime.deadline_s", fmt::format("at least {}", kLeastDeadline));
    if (runtime.deadline_s > kYear)
      return unexpected(*node, "runtime.deadline_s", "at most a year");
  }
  runtime.heartbeat_s = std::min(5.0, runtime.deadline_s / 4);
  if (const Node* node = find_key(table, "heartbeat_s")) {
    PENSTOCK_ASSIGN(runtime.heartbeat_s, read_positive(*node, "runtime.heartbeat_s"));
    // What the threads that beat can keep to.
    if (runtime.heartbeat_s < kLeastHeartbeat)
      return unexpected(*node, "runtime.heartbeat_s", fmt::format("at least {}", kLeastHeartbeat));
    if (runtime.heartbeat_s >= runtime.deadline_s) {
      return unexpected(*node, "runtime.heartbeat_s",
                        fmt::format("less than deadline_s, which is {}", runtime.deadline_s));
    }
  }
  if (const Node* node = find_key(table, "stall_warning_s")) {
    config_.stall_warning_given_ = true;
    PENSTOCK_ASSIGN(runtime.stall_warning_s, read_stall(*node, "runtime.stall_warning_s"));
  }
  if (const Node* node = find_key(table, "busy_limit_s")) {
    config_.busy_limit_given_ = true;
    PENSTOCK_ASSIGN(runtime.busy_limit_s, read_stall(*node, "runtime.busy_limit_s"));
  }
  return {};
}

}  // namespace penstock
