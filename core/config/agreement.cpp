#include "core/config/agreement.hpp"

#include "core/config/keys.hpp"
#include "core/tensor/dtype.hpp"

#include <fmt/ranges.h>

#include <algorithm>

namespace penstock {

namespace {

std::string names_text(const std::vector<std::string>& names) {
  std::vector<std::string> quoted;
  for (const std::string& name : names) quoted.push_back(quoted_text(name));
  return fmt::format("[{}]", fmt::join(quoted, ", "));
}

std::string range_text(const Range& range) {
  return fmt::format("{{ min = {}, max = {} }}", range.minimum, range.maximum);
}

void add_rule_lines(const Scheme& scheme, size_t number, std::vector<std::string>& lines) {
  const Rule& rule = scheme.rules[number - 1];
  const auto add = [&](std::string_view key, const std::string& value) {
    lines.push_back(fmt::format("rule {:04} {} = {}", number, key, value));
  };
  if (!rule.match.names.empty()) add("match.name", names_text(rule.match.names));
  if (rule.match.dims) add("match.dims", range_text(*rule.match.dims));
  if (rule.match.elements) add("match.elements", range_text(*rule.match.elements));
  if (rule.match.dtype) add("match.dtype", quoted_text(dtype_name(*rule.match.dtype)));
  const Choice choice = scheme.choice_of(number);
  add("memory", quoted_text(choice.memory));
  add("candidates", names_text(choice.candidates));
}

Status add_scheme_lines(const Scheme& scheme, const DescribeInstance& describe,
                        std::vector<std::string>& lines) {
  for (const ConfigKey& key : scheme_keys().keys)
    lines.push_back(fmt::format("scheme.{} = {}", key.name, key_text(key, scheme)));
  for (const ConfigKey& key : transport_keys().keys)
    lines.push_back(fmt::format("transport.{} = {}", key.name, key_text(key, scheme)));
  for (size_t i = 1; i <= scheme.rules.size(); ++i) add_rule_lines(scheme, i, lines);
  for (const auto& [key, instance] : scheme.instances) {
    const std::string prefix = fmt::format("{}.{}", kind_name(instance.kind), instance.name);
    lines.push_back(fmt::format("{} is {}", prefix, instance.id()));
    PENSTOCK_ASSIGN(const std::vector<std::string> described, describe(instance));
    for (const std::string& line : described) lines.push_back(fmt::format("{} {}", prefix, line));
  }
  return {};
}

}  // namespace

Result<std::string> agreement_text(const Config& config, const DescribeInstance& describe) {
  std::string text;
  for (const ConfigKey& key : runtime_keys().keys)
    if (key.agreed)
      text += fmt::format("runtime.{} = {}\n", key.name, key_text(key, config.runtime()));
  for (uint64_t stage : config.stages()) {
    std::vector<std::string> lines;
    PENSTOCK_TRY(add_scheme_lines(config.at_step(stage), describe, lines));
    std::sort(lines.begin(), lines.end());
    for (const std::string& line : lines) text += fmt::format("from step {}: {}\n", stage, line);
  }
  return text;
}

std::string first_difference(std::string_view here, std::string_view there) {
  const auto next_line = [](std::string_view& rest) -> std::optional<std::string_view> {
    if (rest.empty()) return std::nullopt;
    const size_t end = rest.find('\n');
    const std::string_view line = rest.substr(0, end);
    rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
    return line;
  };
  while (!here.empty() || !there.empty()) {
    const std::optional<std::string_view> mine = next_line(here), other = next_line(there);
    if (mine == other) continue;
    return fmt::format("here \"{}\", there \"{}\"", mine.value_or("nothing"),
                       other.value_or("nothing"));
  }
  return {};
}

}  // namespace penstock
