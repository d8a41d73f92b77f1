// penstock check: tests the declarations of options, and makes instances at their bounds.
#include "core/plugin/options.hpp"
#include "tools/penstock/check/tests.hpp"

#include <cmath>

namespace penstock::command {

namespace {

Setting setting(decltype(Setting::value) value) {
  return {std::move(value), {"penstock check", 0, 0}};
}

Setting number(const penstock_option& option, double value) {
  if (option.type == PENSTOCK_OPTION_INTEGER) return setting(static_cast<int64_t>(value));
  return setting(value);
}

bool is_number(const penstock_option& option) {
  return option.type == PENSTOCK_OPTION_INTEGER || option.type == PENSTOCK_OPTION_REAL;
}

// The smallest value that is allowed.
double lowest(const penstock_option& option) {
  if ((option.flags & PENSTOCK_OPTION_OPEN_MINIMUM) == 0) return option.minimum;
  if (option.type == PENSTOCK_OPTION_INTEGER) return std::floor(option.minimum) + 1;
  const double above = option.minimum + std::max(std::abs(option.minimum), 1.0) * 1e-6;
  return std::min(above, option.maximum);
}

// The largest value that is allowed.
double highest(const penstock_option& option) {
  if ((option.flags & PENSTOCK_OPTION_OPEN_MAXIMUM) == 0) return option.maximum;
  if (option.type == PENSTOCK_OPTION_INTEGER) return std::ceil(option.maximum) - 1;
  const double below = option.maximum - std::max(std::abs(option.maximum), 1.0) * 1e-6;
  return std::max(below, option.minimum);
}

// True if the option's type can hold the value. A 64-bit integer cannot hold every double.
bool fits(const penstock_option& option, double value) {
  return std::isfinite(value) &&
         (option.type != PENSTOCK_OPTION_INTEGER || std::abs(value) < 9.2e18);
}

std::vector<Setting> edges(const penstock_option& option) {
  std::vector<Setting> all;
  if (option.type == PENSTOCK_OPTION_BOOL) return {setting(false), setting(true)};
  for (uint64_t i = 0; option.type == PENSTOCK_OPTION_CHOICE && i < option.n_choices; ++i)
    all.push_back(setting(std::string(view(option.choices[i]))));
  if (!is_number(option)) return all;
  for (const double value : {lowest(option), highest(option)})
    if (fits(option, value)) all.push_back(number(option, value));
  return all;
}

std::vector<Setting> beyond(const penstock_option& option) {
  std::vector<Setting> all;
  if (option.type == PENSTOCK_OPTION_CHOICE)
    all.push_back(setting(std::string("no such choice, surely")));
  if (option.type == PENSTOCK_OPTION_BOOL) all.push_back(setting(int64_t{7}));
  if (!is_number(option)) return all;
  const bool open = (option.flags & PENSTOCK_OPTION_OPEN_MINIMUM) != 0;
  const bool open_above = (option.flags & PENSTOCK_OPTION_OPEN_MAXIMUM) != 0;
  const double below = open ? option.minimum : option.minimum - std::abs(option.minimum) - 1;
  const double above = open_above ? option.maximum : option.maximum + std::abs(option.maximum) + 1;
  for (const double value : {below, above})
    if (fits(option, value)) all.push_back(number(option, value));
  all.push_back(setting(std::string("no number")));
  return all;
}

TestOutcome test_declarations(const Subject& subject) {
  const Plugin& plugin = *subject.plugin;
  return check_option_declarations(plugin.options, plugin.n_options);
}

template <typename Table>
Status make_and_destroy(const Subject& subject, const Settings& settings) {
  return make_with<Table>(subject, settings).status();
}

Status make_any(const Subject& subject, const Settings& settings) {
  switch (subject.plugin->record.kind) {
    case Kind::compressor:
      return make_and_destroy<penstock_compressor>(subject, settings);
    case Kind::memory:
      return make_and_destroy<penstock_memory>(subject, settings);
    case Kind::collective:
      return make_and_destroy<penstock_collective>(subject, settings);
    case Kind::scheduler:
      return make_and_destroy<penstock_scheduler>(subject, settings);
  }
  return internal("unknown kind");
}

TestOutcome test_create(const Subject& subject) {
  doing("create, describe and destroy with default options");
  for (int i = 0; i < 3; ++i)
    if (Status status = make_any(subject, default_settings(*subject.plugin)); !status.ok())
      return status;
  return {};
}

TestOutcome test_edges(const Subject& subject) {
  const Plugin& plugin = *subject.plugin;
  std::string refused;
  for (uint64_t i = 0; i < plugin.n_options; ++i) {
    for (const Setting& edge : edges(*plugin.options[i])) {
      Settings settings = default_settings(plugin);
      const std::string name(view(plugin.options[i]->name));
      settings[name] = edge;
      doing(fmt::format("create with {} = {}", name, edge.text()));
      const Status status = make_any(subject, settings);
      if (status.ok()) continue;
      // The value is legal alone, but the plugin may refuse it together with the other options.
      if (status.code() != Code::invalid_argument)
        return status.with_context(fmt::format("{} = {}", name, edge.text()));
      refused += (refused.empty() ? "" : "; ") + std::string(status.message());
    }
  }
  return {Verdict::ok, refused.empty() ? "" : "refused beside default options: " + refused};
}

TestOutcome test_beyond(const Subject& subject) {
  const Plugin& plugin = *subject.plugin;
  const auto resolves = [&](const Settings& settings) {
    return resolve_options(plugin.options, plugin.n_options, settings, plugin.record.id,
                           {"penstock check", 0, 0})
        .ok();
  };
  for (uint64_t i = 0; i < plugin.n_options; ++i) {
    for (const Setting& outside : beyond(*plugin.options[i])) {
      Settings settings = default_settings(plugin);
      const std::string name(view(plugin.options[i]->name));
      settings[name] = outside;
      if (resolves(settings))
        return {Verdict::failed,
                fmt::format("{} = {} is accepted, declared is {}", name, outside.text(),
                            option_range_text(*plugin.options[i]))};
    }
  }
  Settings settings = default_settings(plugin);
  settings["no_such_option_surely"] = setting(true);
  if (resolves(settings)) return {Verdict::failed, "an unknown option is accepted"};
  return {};
}

}  // namespace

Settings default_settings(const Plugin& plugin) {
  Settings settings;
  for (uint64_t i = 0; i < plugin.n_options; ++i) {
    const penstock_option& option = *plugin.options[i];
    if ((option.flags & PENSTOCK_OPTION_REQUIRED) == 0) continue;
    const std::vector<Setting> legal = edges(option);
    settings[std::string(view(option.name))] = !legal.empty()      ? legal.front()
                                               : is_number(option) ? number(option, 1)
                                                                   : setting(std::string("x"));
  }
  return settings;
}

std::vector<Test> option_tests() {
  return {loaded("option declarations", test_declarations),
          loaded("create and destroy", test_create), loaded("options at their bounds", test_edges),
          loaded("options out of bounds", test_beyond)};
}

}  // namespace penstock::command
