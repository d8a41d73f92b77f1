#include "core/config/reader.hpp"

#include "core/base/nearest.hpp"
#include "core/config/keys.hpp"
#include "core/config/rule.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <set>

namespace penstock {

namespace {

const std::vector<std::string> kKindNames = {"compressor", "memory", "collective", "scheduler"};

}  // namespace

Result<Config> ConfigReader::read(const Node& root, const std::string& origin) {
  config_ = Config();
  config_.origin_ = origin;
  const NodeTable& tables = *root.table();
  std::vector<std::string> known = {"scheme", "rule", "switch", "transport", "runtime"};
  known.insert(known.end(), kKindNames.begin(), kKindNames.end());
  PENSTOCK_TRY(check_keys(tables, "", known));
  for (Kind kind : kKinds) {
    if (const Node* node = find_key(tables, kind_name(kind)))
      PENSTOCK_TRY(read_instances(kind, *node));
  }
  if (const Node* node = find_key(tables, "scheme"))
    PENSTOCK_TRY(read_scheme(*node, "scheme", config_.base_));
  if (const Node* node = find_key(tables, "transport")) PENSTOCK_TRY(read_transport(*node));
  if (const Node* node = find_key(tables, "rule")) PENSTOCK_TRY(read_rules(*node));
  if (const Node* node = find_key(tables, "switch")) PENSTOCK_TRY(read_switches(*node));
  if (const Node* node = find_key(tables, "runtime")) PENSTOCK_TRY(read_runtime(*node));
  PENSTOCK_TRY(check_references());
  return std::move(config_);
}

Status ConfigReader::read_instances(Kind kind, const Node& node) {
  PENSTOCK_ASSIGN(const NodeTable* instances, read_table(node, kind_name(kind)));
  for (const auto& [name, table] : *instances) {
    if (!table.table()) {
      return unexpected(
          table, fmt::format("{}.{}", kind_name(kind), name),
          fmt::format("a table [{}.NAME] with the options of instance NAME", kind_name(kind)));
    }
    PENSTOCK_TRY(read_instance(kind, name, table));
  }
  return {};
}

Status ConfigReader::read_instance(Kind kind, const std::string& name, const Node& node) {
  const std::string prefix = fmt::format("{}.{}", kind_name(kind), name);
  if (!is_instance_name(name)) {
    return invalid_argument(
        "{}: the instance name in [{}] must be made of letters, digits, '-' and '_'",
        node.where.text(), prefix);
  }
  InstanceConfig instance{kind, name, name, {}, node.where};
  for (const auto& [key, value] : *node.table()) {
    const std::string full = prefix + "." + key;
    if (key == "plugin") {
      PENSTOCK_ASSIGN(instance.plugin, read_name(value, full));
    } else {
      PENSTOCK_ASSIGN(instance.options[key], read_setting(value, full));
    }
  }
  config_.base_.instances[{kind, name}] = std::move(instance);
  return {};
}

// Reads the keys of [scheme] in a table, with their places.
Status ConfigReader::read_scheme(const Node& node, const std::string& title, Scheme& scheme) {
  PENSTOCK_ASSIGN(const NodeTable* table, read_table(node, title));
  PENSTOCK_TRY(check_keys(*table, "scheme", scheme_keys().names()));
  for (const ConfigKey& key : scheme_keys().keys) {
    const std::string name(key.name);
    const Node* value = find_key(*table, name);
    if (value == nullptr) continue;
    PENSTOCK_TRY(read_key(key, *value, "scheme." + name, scheme));
    scheme.where[name] = value->where;
  }
  return {};
}

Status ConfigReader::read_transport(const Node& node) {
  PENSTOCK_TRY(only_of_the_run(node, "transport"));
  PENSTOCK_ASSIGN(const NodeTable* table, read_table(node, "transport"));
  PENSTOCK_TRY(check_keys(*table, "transport", transport_keys().names()));
  for (const ConfigKey& key : transport_keys().keys) {
    const Node* value = find_key(*table, std::string(key.name));
    if (value == nullptr) continue;
    const std::string full = fmt::format("transport.{}", key.name);
    PENSTOCK_TRY(read_key(key, *value, full, config_.base_));
    config_.base_.where[full] = value->where;
  }
  return {};
}

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

Status ConfigReader::read_switches(const Node& node) {
  const NodeArray* array = node.array();
  if (array == nullptr) return unexpected(node, "switch", "tables [[switch]]");
  std::vector<Switch> switches;
  for (const Node& entry : *array) {
    PENSTOCK_ASSIGN(Switch next, read_switch(entry, fmt::format("switch {}", switches.size() + 1)));
    switches.push_back(std::move(next));
  }
  config_.take_switches(std::move(switches));
  return {};
}

Result<Switch> ConfigReader::read_switch(const Node& node, const std::string& title) {
  PENSTOCK_ASSIGN(const NodeTable* table, read_table(node, title));
  PENSTOCK_TRY(check_keys(*table, title, switch_keys().names()));
  const Node* at_step = find_key(*table, "at_step");
  const Node* set = find_key(*table, "set");
  if (at_step == nullptr || set == nullptr) {
    return invalid_argument(
        "{}: {} lacks {}, expected for example at_step = 500 and set = "
        "{{ scheme.compressor = \"NAME\" }}",
        node.where.text(), title, at_step == nullptr ? "at_step" : "set");
  }
  Switch result;
  result.where = node.where;
  PENSTOCK_ASSIGN(result.at_step, read_count(*at_step, title + ".at_step"));
  const std::string prefix = title + ".set";
  PENSTOCK_ASSIGN(const NodeTable* values, read_table(*set, prefix));
  std::vector<std::string> known = kKindNames;
  known.push_back("scheme");
  PENSTOCK_TRY(check_keys(*values, prefix, known));
  for (const auto& [key, value] : *values) {
    if (const std::optional<Kind> kind = kind_from_name(key)) {
      PENSTOCK_TRY(read_options(*kind, value, key, result.options));
      continue;
    }
    PENSTOCK_TRY(read_scheme(value, prefix + ".scheme", result.scheme));
  }
  if (const auto apply = result.scheme.where.find("apply"); apply != result.scheme.where.end())
    return invalid_argument(
        "{}: {} sets scheme.apply, but means that are under way at the switch would be lost; set "
        "apply in [scheme], for the whole run",
        apply->second.text(), title);
  if (result.scheme.where.empty() && result.options.empty()) {
    return invalid_argument(
        "{}: {} sets nothing, expected for example set = {{ scheme.compressor = \"NAME\" }} or "
        "{{ compressor.NAME.density = 0.001 }}",
        set->where.text(), title);
  }
  return result;
}

Status ConfigReader::check_overridden(const std::map<InstanceKey, Settings>& options,
                                      const std::vector<InstanceKey>& there) const {
  for (const auto& [key, settings] : options) {
    if (settings.empty() || std::find(there.begin(), there.end(), key) != there.end()) continue;
    std::vector<std::string> known;
    for (const auto& [kind, name] : there)
      if (kind == key.first && is_instance_name(name)) known.push_back(name);
    return invalid_argument(
        "{}: no {} instance is called \"{}\": it has no table [{}.{}] and no scheme or rule "
        "names it{}",
        settings.begin()->second.where.text(), kind_name(key.first), key.second,
        kind_name(key.first), key.second, did_you_mean(key.second, known));
  }
  return {};
}

std::vector<ConfigReader::InstanceKey> ConfigReader::instances_of_all_stages() const {
  std::vector<InstanceKey> there;
  std::set<InstanceKey> seen;
  for (const uint64_t stage : config_.stages())
    for (const auto& [key, instance] : config_.at_step(stage).instances)
      if (seen.insert(key).second) there.push_back(key);
  return there;
}

Status ConfigReader::check_used() const {
  std::set<InstanceKey> used;
  for (const uint64_t stage : config_.stages()) {
    const Scheme scheme = config_.at_step(stage);
    used.insert({{Kind::compressor, scheme.compressor},
                 {Kind::memory, scheme.memory},
                 {Kind::memory, scheme.owner_memory},
                 {Kind::collective, scheme.collective},
                 {Kind::collective, scheme.transport},
                 {Kind::collective, scheme.local_transport},
                 {Kind::collective, scheme.cross_transport},
                 {Kind::collective, scheme.device_transport},
                 {Kind::scheduler, scheme.scheduler}});
    // The launcher decides which transport is used, so each may be used.
    if (scheme.collective == kAutoTransport || scheme.transport == kAutoTransport)
      for (const std::string_view name : defaults::kTransports)
        used.insert({Kind::collective, std::string(name)});
    for (const std::string& name : scheme.candidates) used.insert({Kind::compressor, name});
    for (const Rule& rule : scheme.rules) {
      used.insert({{Kind::compressor, rule.compressor}, {Kind::memory, rule.memory}});
      for (const std::string& name : rule.candidates) used.insert({Kind::compressor, name});
    }
  }
  for (const auto& [key, instance] : config_.base_.instances) {
    if (used.count(key) > 0) continue;
    std::vector<std::string> named;
    for (const auto& [kind, name] : used)
      if (kind == key.first && !name.empty()) named.push_back(name);
    return invalid_argument(
        "{}: nothing names [{}.{}], so it would be of no effect; the {} named here: \"{}\"; remove "
        "the table, or name it in [scheme], a rule or a switch",
        instance.where.text(), kind_name(key.first), key.second, kind_name(key.first),
        fmt::join(named, "\", \""));
  }
  return {};
}

// An override for an instance that no gradient of the rule uses would silently have no effect.
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
        "{}: rule {} sets options of the {} \"{}\", but the gradients that it matches get \"{}\"; "
        "name \"{}\" "
        "in the rule or set options of \"{}\"",
        settings.begin()->second.where.text(), index + 1, kind_name(key.first), key.second, in_use,
        key.second, in_use);
  }
  return {};
}

Status ConfigReader::check_references() const {
  const std::vector<InstanceKey> there = instances_of_all_stages();
  for (const Switch& one : config_.switches_) PENSTOCK_TRY(check_overridden(one.options, there));
  for (size_t i = 0; i < config_.base_.rules.size(); ++i) {
    PENSTOCK_TRY(check_overridden(config_.base_.rules[i].overrides, there));
    PENSTOCK_TRY(check_rule_overrides(i));
  }
  return check_used();
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
  if (runtime.check_parameters_every != 0 && runtime.check_parameters == "off")
    return unexpected(*find_key(*table, "check_parameters_every"), "runtime.check_parameters_every",
                      "0, because check_parameters is \"off\"");
  return {};
}

}  // namespace penstock
