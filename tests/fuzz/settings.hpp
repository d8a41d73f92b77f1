// Options for a fuzzed plugin. In each setting one option differs from its default.
#pragma once

#include <algorithm>
#include <cmath>
#include <set>
#include <sstream>
#include <string>
#include <testing/plugin.hpp>
#include <vector>

namespace penstock::test {

// The limits of an integer's range, the odd number next to its geometric middle, and the next
// multiple of 64. Every value of a short range.
inline std::set<int> values_of(const penstock_option& option) {
  const auto least = static_cast<int>(std::max(option.minimum, -0x1p30));
  const auto most = static_cast<int>(std::min(option.maximum, 0x1p30));
  const auto middle = static_cast<int>(std::sqrt(std::max(least, 1) * std::max(1.0 * most, 1.0)));
  std::set<int> values{least, most, middle | 1, (middle + 32) / 64 * 64};
  if (most - least < 8)
    for (int value = least; value <= most; ++value) values.insert(value);
  std::erase_if(values, [&](int value) { return value < least || value > most; });
  return values;
}

// The defaults, and a setting for each other value of each choice, switch and integer. Shares have
// their largest value, which gives the longest payloads.
inline std::vector<OptionSettings> settings_of(const LoadedPlugin& plugin) {
  std::vector<OptionSettings> all{{}};
  for (uint64_t o = 0; o < plugin.module->n_options; ++o) {
    const penstock_option& option = *plugin.module->options[o];
    const std::string name(option.name.data, option.name.size);
    if (option.type == PENSTOCK_OPTION_BOOL) all.push_back({{name, option.default_integer == 0}});
    for (uint64_t c = 0; option.type == PENSTOCK_OPTION_CHOICE && c < option.n_choices; ++c)
      all.push_back({{name, option.choices[c].data}});  // choices are literals
    if (option.type == PENSTOCK_OPTION_INTEGER)
      for (const int value : values_of(option)) all.push_back({{name, value}});
    if (option.type == PENSTOCK_OPTION_REAL && option.maximum == 1) all.push_back({{name, 1.0}});
  }
  return all;
}

inline std::string label_of(const OptionSettings& settings) {
  if (settings.empty()) return "the defaults";
  const auto& [name, setting] = settings[0];
  std::ostringstream label;
  label << name << " = ";
  std::visit([&](const auto& value) { label << value; }, setting);
  return label.str();
}

}  // namespace penstock::test
