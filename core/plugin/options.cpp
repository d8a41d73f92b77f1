#include "core/plugin/options.hpp"

#include "core/base/nearest.hpp"
#include "core/plugin/c_struct.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <set>

namespace penstock {

namespace {

constexpr uint64_t kMostOptions = 1024;

std::vector<std::string> choices_of(const penstock_option& option) {
  std::vector<std::string> choices;
  for (uint64_t i = 0; i < option.n_choices; ++i) choices.emplace_back(view(option.choices[i]));
  return choices;
}

bool within(const penstock_option& option, double value) {
  const bool from = (option.flags & PENSTOCK_OPTION_OPEN_MINIMUM) != 0 ? value > option.minimum
                                                                       : value >= option.minimum;
  const bool to = (option.flags & PENSTOCK_OPTION_OPEN_MAXIMUM) != 0 ? value < option.maximum
                                                                     : value <= option.maximum;
  return from && to;
}

// Returns "an integer in [1, 8]", or "one of \"item\", \"bucket\"".
std::string expectation(const penstock_option& option) {
  if (option.type == PENSTOCK_OPTION_BOOL) return "true or false";
  if (option.type == PENSTOCK_OPTION_CHOICE) return option_range_text(option);
  const std::string range = option_range_text(option);
  const std::string_view article = option.type == PENSTOCK_OPTION_INTEGER ? "an" : "a";
  const std::string_view unit = view(option.unit);
  return fmt::format("{} {}{}{}{}{}", article, option_type_name(option.type),
                     range.empty() ? "" : " ", range, unit.empty() ? "" : ", in ", unit);
}

// Puts `setting` into `value`. False if the option does not accept its type or value.
bool take(const penstock_option& option, const Setting& setting, penstock_option_value& value,
          std::string& text) {
  const auto* flag = std::get_if<bool>(&setting.value);
  const auto* integer = std::get_if<int64_t>(&setting.value);
  const auto* real = std::get_if<double>(&setting.value);
  const auto* string = std::get_if<std::string>(&setting.value);
  switch (option.type) {
    case PENSTOCK_OPTION_BOOL:
      if (flag == nullptr) return false;
      value.integer = *flag ? 1 : 0;
      return true;
    case PENSTOCK_OPTION_INTEGER:
      if (integer == nullptr) return false;
      value.integer = *integer;
      value.real = static_cast<double>(*integer);
      return within(option, value.real);
    case PENSTOCK_OPTION_REAL:
      if (integer == nullptr && real == nullptr) return false;
      value.real = real != nullptr ? *real : static_cast<double>(*integer);
      return std::isfinite(value.real) && within(option, value.real);
    case PENSTOCK_OPTION_STRING:
      if (string == nullptr) return false;
      text = *string;
      return true;
    case PENSTOCK_OPTION_CHOICE: {
      if (string == nullptr) return false;
      text = *string;
      const std::vector<std::string> choices = choices_of(option);
      return std::find(choices.begin(), choices.end(), text) != choices.end();
    }
    default:
      return false;
  }
}

void take_default(const penstock_option& option, penstock_option_value& value, std::string& text) {
  value.is_default = 1;
  value.integer = option.default_integer;
  value.real = option.type == PENSTOCK_OPTION_INTEGER ? static_cast<double>(option.default_integer)
                                                      : option.default_real;
  text = view(option.default_text);
}

std::string value_text(const penstock_option_value& value) {
  switch (value.type) {
    case PENSTOCK_OPTION_BOOL:
      return value.integer != 0 ? "true" : "false";
    case PENSTOCK_OPTION_INTEGER:
      return fmt::format("{}", value.integer);
    case PENSTOCK_OPTION_REAL:
      return fmt::format("{}", value.real);
    default:
      return quoted_text(view(value.text));
  }
}

Status check_declaration(const penstock_option& option) {
  const std::string_view name = view(option.name);
  const auto legal = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
  };
  if (name.empty() || name.size() > 63 || !std::all_of(name.begin(), name.end(), legal) ||
      name == "plugin") {
    return invalid_argument("option name \"{}\": expected lower_snake_case, and not \"plugin\"",
                            name);
  }
  if (option.type < PENSTOCK_OPTION_BOOL || option.type > PENSTOCK_OPTION_CHOICE) {
    return invalid_argument("option {}: its type is {}, expected 1 (bool) to 5 (choice)", name,
                            option.type);
  }
  const bool is_number =
      option.type == PENSTOCK_OPTION_INTEGER || option.type == PENSTOCK_OPTION_REAL;
  if (is_number && !(option.minimum <= option.maximum)) {
    return invalid_argument(
        "option {}: its bounds are {} to {}, expected minimum <= maximum (-HUGE_VAL and HUGE_VAL "
        "where open ended)",
        name, option.minimum, option.maximum);
  }
  if (option.type == PENSTOCK_OPTION_CHOICE &&
      (option.n_choices == 0 || option.choices == nullptr)) {
    return invalid_argument("option {}: a choice without choices", name);
  }
  if ((option.flags & PENSTOCK_OPTION_REQUIRED) != 0) return {};
  const double number = option.type == PENSTOCK_OPTION_INTEGER
                            ? static_cast<double>(option.default_integer)
                            : option.default_real;
  const std::vector<std::string> choices =
      option.type == PENSTOCK_OPTION_CHOICE ? choices_of(option) : std::vector<std::string>();
  const bool known =
      option.type != PENSTOCK_OPTION_CHOICE ||
      std::find(choices.begin(), choices.end(), view(option.default_text)) != choices.end();
  if ((is_number && !within(option, number)) || !known) {
    return invalid_argument("option {}: its default is {}, expected {}", name,
                            option_default_text(option), expectation(option));
  }
  return {};
}

}  // namespace

std::string_view option_type_name(uint32_t type) {
  switch (type) {
    case PENSTOCK_OPTION_BOOL:
      return "bool";
    case PENSTOCK_OPTION_INTEGER:
      return "integer";
    case PENSTOCK_OPTION_REAL:
      return "real";
    case PENSTOCK_OPTION_STRING:
      return "string";
    case PENSTOCK_OPTION_CHOICE:
      return "choice";
    default:
      return "unknown";
  }
}

std::string option_range_text(const penstock_option& option) {
  if (option.type == PENSTOCK_OPTION_CHOICE) {
    return fmt::format("one of \"{}\"", fmt::join(choices_of(option), "\", \""));
  }
  if (option.type != PENSTOCK_OPTION_INTEGER && option.type != PENSTOCK_OPTION_REAL) return {};
  const bool open = (option.flags & PENSTOCK_OPTION_OPEN_MINIMUM) != 0;
  const bool open_above = (option.flags & PENSTOCK_OPTION_OPEN_MAXIMUM) != 0;
  const bool has_minimum = std::isfinite(option.minimum),
             has_maximum = std::isfinite(option.maximum);
  if (has_minimum && has_maximum) {
    return fmt::format("in {}{}, {}{}", open ? '(' : '[', option.minimum, option.maximum,
                       open_above ? ')' : ']');
  }
  if (has_minimum) return fmt::format("{} {}", open ? "above" : "of at least", option.minimum);
  if (has_maximum) return fmt::format("{} {}", open_above ? "below" : "of at most", option.maximum);
  return {};
}

std::string option_default_text(const penstock_option& option) {
  if ((option.flags & PENSTOCK_OPTION_REQUIRED) != 0) return {};
  penstock_option_value value{};
  std::string text;
  value.type = option.type;
  take_default(option, value, text);
  value.text = str(text);
  return value_text(value);
}

Status check_option_declarations(const penstock_option* const* options, uint64_t n_options) {
  if (n_options > kMostOptions)
    return invalid_argument("it declares {} options, expected at most {}", n_options, kMostOptions);
  if (n_options > 0 && options == nullptr)
    return invalid_argument("it declares {} options at a null pointer", n_options);
  std::set<std::string_view> names;
  for (uint64_t i = 0; i < n_options; ++i) {
    if (options[i] == nullptr) return invalid_argument("option {} is a null pointer", i);
    if (options[i]->struct_size < kFirstBytes<penstock_option> ||
        options[i]->struct_size > kMostStructBytes) {
      return invalid_argument("option {}: its struct_size is {}, expected {} at least", i,
                              options[i]->struct_size, kFirstBytes<penstock_option>);
    }
    PENSTOCK_TRY(check_declaration(*options[i]));
    if (!names.insert(view(options[i]->name)).second) {
      return invalid_argument("option {} is declared twice", view(options[i]->name));
    }
  }
  return {};
}

namespace {

std::vector<std::string> names_of(const penstock_option* const* options, uint64_t n_options) {
  std::vector<std::string> names;
  for (uint64_t i = 0; i < n_options; ++i) names.emplace_back(view(options[i]->name));
  return names;
}

Status check_names(const std::vector<std::string>& known, const Settings& settings,
                   const std::string& instance) {
  for (const auto& [key, setting] : settings) {
    if (std::find(known.begin(), known.end(), key) != known.end()) continue;
    return invalid_argument("{}: unknown option \"{}.{}\"{}", setting.where.text(), instance, key,
                            known.empty() ? "; it has none" : did_you_mean(key, known));
  }
  return {};
}

// Calls `take`, and returns an error if the option does not accept the setting.
Status take_or_say(const penstock_option& option, const Setting& setting,
                   const std::string& instance, penstock_option_value& value, std::string& text) {
  if (take(option, setting, value, text)) return {};
  std::string near;
  if (option.type == PENSTOCK_OPTION_CHOICE) near = nearest_name(text, choices_of(option));
  return invalid_argument("{}: {}.{} is {}, expected {}{}", setting.where.text(), instance,
                          view(option.name), setting.text(), expectation(option),
                          near.empty() ? near : fmt::format("; did you mean \"{}\"?", near));
}

}  // namespace

Status check_settings(const penstock_option* const* options, uint64_t n_options,
                      const Settings& settings, const std::string& instance) {
  PENSTOCK_TRY(check_names(names_of(options, n_options), settings, instance));
  for (uint64_t i = 0; i < n_options; ++i) {
    const auto setting = settings.find(std::string(view(options[i]->name)));
    if (setting == settings.end()) continue;
    penstock_option_value value{};
    std::string text;
    PENSTOCK_TRY(take_or_say(*options[i], setting->second, instance, value, text));
  }
  return {};
}

Result<OptionValues> resolve_options(const penstock_option* const* options, uint64_t n_options,
                                     const Settings& settings, const std::string& instance,
                                     const Location& where) {
  const std::vector<std::string> known = names_of(options, n_options);
  PENSTOCK_TRY(check_names(known, settings, instance));
  OptionValues values;
  for (uint64_t i = 0; i < n_options; ++i) {
    const penstock_option& option = *options[i];
    auto entry = std::make_unique<OptionValues::Entry>();
    entry->name = known[i];
    entry->rank_local = (option.flags & PENSTOCK_OPTION_RANK_LOCAL) != 0;
    penstock_option_value& value = entry->value;
    value.struct_size = sizeof value;
    value.type = option.type;
    const auto setting = settings.find(known[i]);
    if (setting == settings.end()) {
      if ((option.flags & PENSTOCK_OPTION_REQUIRED) != 0) {
        return invalid_argument("{}: {}.{} is missing and has no default, expected {}",
                                where.text(), instance, known[i], expectation(option));
      }
      take_default(option, value, entry->text);
    } else {
      PENSTOCK_TRY(take_or_say(option, setting->second, instance, value, entry->text));
    }
    value.name = str(entry->name);
    value.text = str(entry->text);
    values.pointers_.push_back(&value);
    values.entries_.push_back(std::move(entry));
  }
  return values;
}

const penstock_option_value* OptionValues::find(std::string_view name) const {
  for (const auto& entry : entries_)
    if (entry->name == name) return &entry->value;
  return nullptr;
}

std::vector<std::string> OptionValues::lines(bool with_rank_local) const {
  std::vector<std::string> lines;
  for (const auto& entry : entries_) {
    if (entry->rank_local && !with_rank_local) continue;
    lines.push_back(fmt::format("{} = {}", entry->name, value_text(entry->value)));
  }
  return lines;
}

}  // namespace penstock
