#include "core/config/key.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <planning/route.hpp>

namespace penstock {
namespace {

// The text of a bound.
std::string number_text(double value) {
  if (value == 366.0 * 86400) return "a year";
  return fmt::format("{}{}", value, value == 0x1p40 ? ", an exbibyte" : "");
}

std::string quoted(const std::vector<std::string>& texts) {
  std::vector<std::string> all;
  for (const std::string& text : texts) all.push_back(quoted_text(text));
  return fmt::format("{}", fmt::join(all, ", "));
}

Status read(const ConfigKey&, const Node& node, const std::string& full, bool& value) {
  PENSTOCK_ASSIGN(value, read_bool(node, full));
  return {};
}

Status read(const ConfigKey& key, const Node& node, const std::string& full, uint64_t& value) {
  PENSTOCK_ASSIGN(value, read_count(node, full, static_cast<uint64_t>(key.minimum)));
  if (static_cast<double>(value) > key.maximum)
    return unexpected(node, full, "at most " + number_text(key.maximum));
  return {};
}

// Seconds.
Status read(const ConfigKey& key, const Node& node, const std::string& full, double& value) {
  const int64_t* none = std::get_if<int64_t>(&node.value);
  if (key.or_never && none != nullptr && *none == 0) {
    value = 0;
    return {};
  }
  PENSTOCK_ASSIGN(value, read_positive(node, full));
  if (value >= key.minimum && value <= key.maximum) return {};
  if (key.or_never)
    return unexpected(
        node, full,
        "0 for never, or " + number_text(key.minimum) + " to " + number_text(key.maximum));
  return unexpected(node, full,
                    value < key.minimum ? "at least " + number_text(key.minimum)
                                        : "at most " + number_text(key.maximum));
}

// The index of the choice.
Result<size_t> read_choice(const ConfigKey& key, const Node& node, const std::string& full) {
  PENSTOCK_ASSIGN(const std::string text, read_one_of(node, full, key.choices));
  return static_cast<size_t>(std::find(key.choices.begin(), key.choices.end(), text) -
                             key.choices.begin());
}

Status read(const ConfigKey& key, const Node& node, const std::string& full, Nonfinite& value) {
  PENSTOCK_ASSIGN(const size_t choice, read_choice(key, node, full));
  value = static_cast<Nonfinite>(choice);
  return {};
}

// Reads a route.
Status read(const ConfigKey& key, const Node& node, const std::string& full, uint32_t& value) {
  PENSTOCK_ASSIGN(const size_t choice, read_choice(key, node, full));
  value = planning::kRoutes[choice].number;
  return {};
}

// A choice, or free: in [scheme] the name of an instance, in [runtime] any text.
template <typename Owner>
Status read_of(const ConfigKey& key, const Node& node, const std::string& full,
               std::string& value) {
  if (!key.choices.empty()) {
    PENSTOCK_ASSIGN(value, read_one_of(node, full, key.choices));
  } else if constexpr (std::is_same_v<Owner, Scheme>) {
    PENSTOCK_ASSIGN(value, read_name(node, full));
  } else {
    PENSTOCK_ASSIGN(value, read_text(node, full));
  }
  return {};
}

template <typename Owner>
Status read_of(const ConfigKey&, const Node& node, const std::string& full,
               std::vector<std::string>& value) {
  PENSTOCK_ASSIGN(value, (std::is_same_v<Owner, Scheme>) ? read_candidates(node, full)
                                                         : read_texts(node, full));
  return {};
}

template <typename Owner, typename Value>
Status read_of(const ConfigKey& key, const Node& node, const std::string& full, Value& value) {
  return read(key, node, full, value);
}

// Calls `act` with the member of `Owner` for the key. False if the key has no such member.
template <typename Owner, typename Act>
bool with_member(const ConfigKey& key, const Act& act) {
  return std::visit(
      [&](auto target) {
        if constexpr (requires(Owner & owner) { owner.*target; }) {
          act(target);
          return true;
        } else {
          return false;
        }
      },
      key.target);
}

std::string text_of(const ConfigKey&, bool value) {
  return value ? "true" : "false";
}
std::string text_of(const ConfigKey&, uint64_t value) {
  return fmt::format("{}", value);
}
std::string text_of(const ConfigKey&, double value) {
  return fmt::format("{}", value);
}
std::string text_of(const ConfigKey&, const std::string& value) {
  return quoted_text(value);
}
std::string text_of(const ConfigKey& key, Nonfinite value) {
  return quoted_text(key.choices[static_cast<size_t>(value)]);
}
std::string text_of(const ConfigKey&, uint32_t route) {
  return quoted_text(route_name(route));
}
std::string text_of(const ConfigKey&, const std::vector<std::string>& value) {
  return fmt::format("[{}]", quoted(value));
}

}  // namespace

template <typename Owner>
Status read_key(const ConfigKey& key, const Node& node, const std::string& full, Owner& owner) {
  Status status;
  with_member<Owner>(key,
                     [&](auto member) { status = read_of<Owner>(key, node, full, owner.*member); });
  return status;
}
template Status read_key(const ConfigKey&, const Node&, const std::string&, Scheme&);
template Status read_key(const ConfigKey&, const Node&, const std::string&, RuntimeConfig&);

template <typename Owner>
std::string key_text(const ConfigKey& key, const Owner& owner) {
  std::string text;
  with_member<Owner>(key, [&](auto member) { text = text_of(key, owner.*member); });
  return text;
}
template std::string key_text(const ConfigKey&, const Scheme&);
template std::string key_text(const ConfigKey&, const RuntimeConfig&);

void copy_key(const ConfigKey& key, const Scheme& from, Scheme& to) {
  with_member<Scheme>(key, [&](auto member) { to.*member = from.*member; });
}

Result<std::vector<std::string>> read_candidates(const Node& node, std::string_view key) {
  if (node.array() == nullptr || node.array()->empty()) {
    return unexpected(node, key,
                      "an array of names of compressor instances, as in [\"first\", \"second\"]");
  }
  std::vector<std::string> names;
  for (const Node& entry : *node.array()) {
    PENSTOCK_ASSIGN(std::string name, read_name(entry, fmt::format("an entry of {}", key)));
    if (std::find(names.begin(), names.end(), name) != names.end()) {
      return invalid_argument("{}: {} lists \"{}\" twice, expected each candidate once",
                              entry.where.text(), key, name);
    }
    names.push_back(std::move(name));
  }
  return names;
}

std::string ConfigKey::type() const {
  struct Name {
    const ConfigKey& key;
    std::string operator()(std::monostate) const { return std::string(key.form); }
    std::string operator()(bool RuntimeConfig::*) const { return "bool"; }
    std::string operator()(uint64_t RuntimeConfig::*) const { return "integer"; }
    std::string operator()(double RuntimeConfig::*) const { return "seconds"; }
    std::string operator()(std::string RuntimeConfig::*) const {
      return key.choices.empty() ? "string" : "one of";
    }
    std::string operator()(Nonfinite RuntimeConfig::*) const { return "one of"; }
    std::string operator()(std::vector<std::string> RuntimeConfig::*) const {
      return "string or strings";
    }
    std::string operator()(std::string Scheme::*) const {
      return key.choices.empty() ? "name" : "one of";
    }
    std::string operator()(uint32_t Scheme::*) const { return "one of"; }
    std::string operator()(std::vector<std::string> Scheme::*) const { return "names"; }
  };
  return std::visit(Name{*this}, target);
}

std::string ConfigKey::range() const {
  if (!choices.empty()) return quoted(choices);
  const std::string never = or_never ? "0, or " : "";
  if (std::isfinite(maximum)) return never + number_text(minimum) + " to " + number_text(maximum);
  return type() == "integer" ? "at least " + number_text(minimum) : never;
}

}  // namespace penstock
