// The configuration of a stage: names of routes and types, rules, switches, derived instances.
#include "core/config/config.hpp"
#include "core/base/printable.hpp"
#include "core/config/glob.hpp"
#include "core/config/keys.hpp"
#include "core/tensor/dtype.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <planning/route.hpp>

namespace penstock {

namespace {

std::string derived_name(const std::string& instance, size_t rule) {
  return fmt::format("{}@rule{}", instance, rule);
}

void add_instance(Scheme& scheme, Kind kind, const std::string& name) {
  if (name.empty()) return;
  scheme.instances.try_emplace({kind, name}, InstanceConfig{kind, name, name, {}, Location{}});
}

// Adds instances that are named but have no table, with the place of the name.
void add_named_instances(Scheme& scheme) {
  const auto add_from_scheme = [&](Kind kind, const std::string& name, const char* key) {
    const bool had = scheme.instances.count({kind, name}) > 0;
    add_instance(scheme, kind, name);
    const auto where = scheme.where.find(key);
    if (!had && where != scheme.where.end()) scheme.instances[{kind, name}].where = where->second;
  };
  add_from_scheme(Kind::compressor, scheme.compressor, "compressor");
  add_from_scheme(Kind::memory, scheme.memory, "memory");
  if (!scheme.owner_memory.empty())
    add_from_scheme(Kind::memory, scheme.owner_memory, "owner_memory");
  add_from_scheme(Kind::collective, scheme.collective, "collective");
  if (!scheme.transport.empty()) add_from_scheme(Kind::collective, scheme.transport, "transport");
  for (const auto& [name, key] : {std::pair(scheme.local_transport, "transport.local"),
                                  std::pair(scheme.cross_transport, "transport.cross"),
                                  std::pair(scheme.device_transport, "transport.device")})
    if (!name.empty()) add_from_scheme(Kind::collective, name, key);
  add_from_scheme(Kind::scheduler, scheme.scheduler, "scheduler");
  for (const std::string& name : scheme.candidates)
    add_from_scheme(Kind::compressor, name, "candidates");
  for (const Rule& rule : scheme.rules) {
    std::vector<std::pair<Kind, std::string>> named = {{Kind::compressor, rule.compressor},
                                                       {Kind::memory, rule.memory}};
    for (const std::string& name : rule.candidates) named.emplace_back(Kind::compressor, name);
    for (const auto& [kind, name] : named) {
      const bool had = scheme.instances.count({kind, name}) > 0;
      add_instance(scheme, kind, name);
      if (!had && !name.empty()) scheme.instances[{kind, name}].where = rule.where;
    }
  }
}

void derive_rule_instances(Scheme& scheme) {
  for (size_t i = 0; i < scheme.rules.size(); ++i) {
    for (const auto& [key, settings] : scheme.rules[i].overrides) {
      const InstanceConfig* base = scheme.find(key.first, key.second);
      if (base == nullptr) continue;  // not used in this stage
      InstanceConfig derived = *base;
      derived.name = derived_name(base->name, i + 1);
      for (const auto& [option, value] : settings) derived.options[option] = value;
      scheme.instances[{key.first, derived.name}] = std::move(derived);
    }
  }
}

}  // namespace

std::string_view route_name(uint32_t route) {
  for (const planning::Route& each : planning::kRoutes)
    if (each.number == route) return each.name;
  return "unknown";
}

std::string Location::text() const {
  if (line == 0) return file.empty() ? "default" : file;
  return fmt::format("{}:{}:{}", file, line, column);
}

std::string Setting::text() const {
  struct Text {
    std::string operator()(bool flag) const { return flag ? "true" : "false"; }
    std::string operator()(int64_t integer) const { return fmt::format("{}", integer); }
    // The shortest digits from which the exact double is read back.
    std::string operator()(double real) const { return fmt::format("{}", real); }
    std::string operator()(const std::string& text) const { return quoted_text(text); }
  };
  return std::visit(Text{}, value);
}

std::string quoted_text(std::string_view text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') result += '\\';
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      fmt::format_to(std::back_inserter(result), "\\u{:04X}", static_cast<unsigned char>(c));
    } else {
      result += c;
    }
  }
  return printable_piece(result) + '"';
}

std::string InstanceConfig::id() const {
  return fmt::format("{}/{}", kind_name(kind), plugin);
}

bool Match::holds(const GradientFacts& gradient) const {
  const auto fits = [&](const std::string& pattern) { return glob_fits(pattern, gradient.name); };
  if (!names.empty() && std::none_of(names.begin(), names.end(), fits)) return false;
  if (dims && !dims->holds(gradient.n_dims)) return false;
  if (elements && !elements->holds(gradient.numel)) return false;
  return !dtype || *dtype == gradient.dtype;
}

std::string Match::text() const {
  std::vector<std::string> conditions;
  const auto add = [&](std::string_view key, const std::string& value) {
    conditions.push_back(fmt::format("{} = {}", key, value));
  };
  if (!names.empty()) add("name", fmt::format("{}", fmt::join(names, " or ")));
  if (dims) add("dims", dims->text());
  if (elements) add("elements", elements->text());
  if (dtype) add("dtype", std::string(dtype_name(*dtype)));
  return fmt::format("{{ {} }}", fmt::join(conditions, ", "));
}

std::string Range::text() const {
  if (minimum == maximum) return fmt::format("{}", minimum);
  if (maximum == UINT64_MAX) return fmt::format("from {}", minimum);
  return minimum == 0 ? fmt::format("up to {}", maximum)
                      : fmt::format("{} to {}", minimum, maximum);
}

Choice Scheme::choose(const GradientFacts& gradient) const {
  for (size_t i = 0; i < rules.size(); ++i) {
    if (rules[i].match.holds(gradient)) return choice_of(i + 1);
  }
  return choice_of(0);
}

Choice Scheme::choice_of(size_t rule_number) const {
  Choice choice{compressor, memory, candidates, rule_number};
  if (rule_number > 0) {
    const Rule& rule = rules[rule_number - 1];
    if (!rule.memory.empty()) choice.memory = rule.memory;
    if (!rule.compressor.empty()) {
      choice.compressor = rule.compressor;
      choice.candidates = rule.candidates;
    } else if (!rule.candidates.empty()) {
      choice.candidates = rule.candidates;
      const bool listed = std::find(rule.candidates.begin(), rule.candidates.end(), compressor) !=
                          rule.candidates.end();
      if (!listed) choice.compressor = rule.candidates.front();
    }
  }
  // The configured compressor comes first, the other candidates in the given order.
  std::erase(choice.candidates, choice.compressor);
  choice.candidates.insert(choice.candidates.begin(), choice.compressor);
  if (rule_number == 0) return choice;
  const Rule& rule = rules[rule_number - 1];
  const auto derive = [&](Kind kind, std::string& name) {
    if (rule.overrides.count({kind, name}) > 0) name = derived_name(name, rule_number);
  };
  derive(Kind::memory, choice.memory);
  derive(Kind::compressor, choice.compressor);
  for (std::string& name : choice.candidates) derive(Kind::compressor, name);
  return choice;
}

const InstanceConfig* Scheme::find(Kind kind, std::string_view name) const {
  const auto found = instances.find({kind, std::string(name)});
  return found == instances.end() ? nullptr : &found->second;
}

void Config::settle_transport(const std::string& name, const std::string& plugin) {
  bool is_used = false;
  const auto settle = [&](Scheme& scheme) {
    for (std::string* of :
         {&scheme.collective, &scheme.transport, &scheme.local_transport, &scheme.cross_transport})
      if (*of == kAutoTransport) {
        *of = name;
        is_used = true;
      }
  };
  settle(base_);
  for (Switch& next : switches_) settle(next.scheme);
  if (is_used && name != plugin)
    base_.instances.try_emplace({Kind::collective, name},
                                InstanceConfig{Kind::collective, name, plugin, {}, Location{}});
}

void Config::take_switches(std::vector<Switch> switches) {
  switches_ = std::move(switches);
  std::stable_sort(switches_.begin(), switches_.end(),
                   [](const Switch& a, const Switch& b) { return a.at_step < b.at_step; });
  for (size_t i = 0; i < switches_.size(); ++i) {
    for (const auto& [key, where] : switches_[i].scheme.where) key_setters_[key].push_back(i);
    for (const auto& [instance, settings] : switches_[i].options)
      for (const auto& [option, value] : settings) option_setters_[instance][option].push_back(i);
  }
}

const Switch* Config::last_of(const Setters& setters, uint64_t step) const {
  const auto after = std::partition_point(setters.begin(), setters.end(),
                                          [&](size_t i) { return switches_[i].at_step <= step; });
  return after == setters.begin() ? nullptr : &switches_[*std::prev(after)];
}

Scheme Config::at_step(uint64_t step) const {
  Scheme scheme = base_;
  for (const ConfigKey& key : scheme_keys().keys) {
    const auto setters = key_setters_.find(key.name);
    if (setters == key_setters_.end()) continue;
    const Switch* last = last_of(setters->second, step);
    if (last == nullptr) continue;
    copy_key(key, last->scheme, scheme);
    scheme.where[setters->first] = last->scheme.where.at(setters->first);
  }
  add_named_instances(scheme);
  for (const auto& [key, options] : option_setters_) {
    // Only another stage may use an instance, and then its options have no effect in this stage.
    const auto instance = scheme.instances.find(key);
    if (instance == scheme.instances.end()) continue;
    for (const auto& [option, setters] : options)
      if (const Switch* last = last_of(setters, step))
        instance->second.options[option] = last->options.at(key).at(option);
  }
  derive_rule_instances(scheme);
  return scheme;
}

std::vector<InstanceConfig> Config::given() const {
  std::vector<InstanceConfig> all;
  const auto add = [&](const std::pair<Kind, std::string>& key, const Settings& settings,
                       const Location& where) {
    const InstanceConfig* table = base_.find(key.first, key.second);
    all.push_back(
        {key.first, key.second, table == nullptr ? key.second : table->plugin, settings, where});
  };
  const auto add_options = [&](const std::map<std::pair<Kind, std::string>, Settings>& options) {
    for (const auto& [key, settings] : options)
      if (!settings.empty()) add(key, settings, settings.begin()->second.where);
  };
  const auto add_named = [&](Scheme scheme) {
    scheme.instances.clear();
    add_named_instances(scheme);
    for (const auto& [key, instance] : scheme.instances)
      if (instance.where.line > 0) add(key, {}, instance.where);  // others are defaults
  };
  for (const auto& [key, instance] : base_.instances) add(key, instance.options, instance.where);
  add_named(base_);
  for (const Rule& rule : base_.rules) add_options(rule.overrides);
  for (const Switch& next : switches_) {
    add_named(next.scheme);
    add_options(next.options);
  }
  return all;
}

std::optional<uint64_t> Config::next_switch_after(uint64_t step) const {
  const auto next = std::partition_point(switches_.begin(), switches_.end(),
                                         [&](const Switch& one) { return one.at_step <= step; });
  return next == switches_.end() ? std::nullopt : std::optional(next->at_step);
}

std::vector<uint64_t> Config::stages() const {
  std::vector<uint64_t> steps = {0};
  for (const Switch& next : switches_)
    if (next.at_step > steps.back()) steps.push_back(next.at_step);
  return steps;
}

}  // namespace penstock
