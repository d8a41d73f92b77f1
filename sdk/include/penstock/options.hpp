// Typed options: a plugin declares them once, as a static list; the core parses, checks and prints
// them.
//
//   static inline const sdk::OptionList options{
//       sdk::real_option("density", 0.01).above(0).at_most(1).unit("fraction").summary("share of
//       entries sent")};
//   explicit TopK(const sdk::Options& values) : density_(values.real("density")) {}
#pragma once

#include <penstock/option.h>
#include <penstock/error.hpp>

#include <cmath>
#include <initializer_list>
#include <limits>
#include <vector>

namespace penstock::sdk {

// One declared option. Texts must be literals: the declaration lives as long as the plugin.
class Option {
 public:
  Option(std::string_view name, uint32_t type) {
    declaration_.struct_size = sizeof declaration_;
    declaration_.name = str(name);
    declaration_.type = type;
    declaration_.minimum = -std::numeric_limits<double>::infinity();
    declaration_.maximum = std::numeric_limits<double>::infinity();
  }
  Option& summary(std::string_view text) {
    return set([&](auto& d) { d.summary = str(text); });
  }
  Option& unit(std::string_view text) {
    return set([&](auto& d) { d.unit = str(text); });
  }
  Option& at_least(double value) {
    return set([&](auto& d) { d.minimum = value; });
  }
  Option& at_most(double value) {
    return set([&](auto& d) { d.maximum = value; });
  }
  Option& above(double value) {
    return set([&](auto& d) {
      d.minimum = value;
      d.flags |= PENSTOCK_OPTION_OPEN_MINIMUM;
    });
  }
  Option& below(double value) {
    return set([&](auto& d) {
      d.maximum = value;
      d.flags |= PENSTOCK_OPTION_OPEN_MAXIMUM;
    });
  }
  Option& rank_local() {
    return set([](auto& d) { d.flags |= PENSTOCK_OPTION_RANK_LOCAL; });
  }
  Option& required() {
    return set([](auto& d) { d.flags |= PENSTOCK_OPTION_REQUIRED; });
  }
  Option& choices(std::initializer_list<std::string_view> names) {
    for (std::string_view name : names) choices_.push_back(str(name));
    return *this;
  }

 private:
  friend class OptionList;
  friend Option bool_option(std::string_view, bool);
  friend Option integer_option(std::string_view, int64_t);
  friend Option real_option(std::string_view, double);
  friend Option string_option(std::string_view, std::string_view);
  friend Option choice_option(std::string_view, std::string_view,
                              std::initializer_list<std::string_view>);

  template <typename Change>
  Option& set(Change&& change) {
    change(declaration_);
    return *this;
  }
  penstock_option declaration_{};
  std::vector<penstock_str> choices_;
};

inline Option bool_option(std::string_view name, bool default_value) {
  Option option(name, PENSTOCK_OPTION_BOOL);
  option.declaration_.default_integer = default_value ? 1 : 0;
  return option;
}
inline Option integer_option(std::string_view name, int64_t default_value) {
  Option option(name, PENSTOCK_OPTION_INTEGER);
  option.declaration_.default_integer = default_value;
  return option;
}
inline Option real_option(std::string_view name, double default_value) {
  Option option(name, PENSTOCK_OPTION_REAL);
  option.declaration_.default_real = default_value;
  return option;
}
inline Option string_option(std::string_view name, std::string_view default_value) {
  Option option(name, PENSTOCK_OPTION_STRING);
  option.declaration_.default_text = str(default_value);
  return option;
}
inline Option choice_option(std::string_view name, std::string_view default_value,
                            std::initializer_list<std::string_view> choices) {
  Option option(name, PENSTOCK_OPTION_CHOICE);
  option.declaration_.default_text = str(default_value);
  option.choices(choices);
  return option;
}

// All options of a plugin, laid out as the C table wants them.
class OptionList {
 public:
  OptionList(std::initializer_list<Option> options) : options_(options) {
    for (Option& option : options_) {
      option.declaration_.choices = option.choices_.data();
      option.declaration_.n_choices = option.choices_.size();
    }
    for (const Option& option : options_) pointers_.push_back(&option.declaration_);
  }
  OptionList(const OptionList&) = delete;
  OptionList& operator=(const OptionList&) = delete;
  const penstock_option* const* data() const { return pointers_.data(); }
  uint64_t size() const { return pointers_.size(); }

 private:
  std::vector<Option> options_;
  std::vector<const penstock_option*> pointers_;
};

// The values an instance is made from: complete, typed and in range.
class Options {
 public:
  Options(const penstock_option_value* const* values, uint64_t n_values)
      : values_(values), n_values_(n_values) {}

  bool boolean(std::string_view name) const {
    return find(name, PENSTOCK_OPTION_BOOL).integer != 0;
  }
  int64_t integer(std::string_view name) const {
    return find(name, PENSTOCK_OPTION_INTEGER).integer;
  }
  double real(std::string_view name) const { return find(name, PENSTOCK_OPTION_REAL).real; }
  std::string_view string(std::string_view name) const {
    return view(find(name, PENSTOCK_OPTION_STRING).text);
  }
  std::string_view choice(std::string_view name) const {
    return view(find(name, PENSTOCK_OPTION_CHOICE).text);
  }
  bool is_default(std::string_view name) const { return find(name, 0).is_default != 0; }

 private:
  const penstock_option_value& find(std::string_view name, uint32_t type) const {
    for (uint64_t i = 0; i < n_values_; ++i) {
      if (view(values_[i]->name) != name) continue;
      if (type != 0 && values_[i]->type != type)
        throw internal("option '", name, "' is read as another type");
      return *values_[i];
    }
    throw internal("option '", name, "' is read but was not declared");
  }
  const penstock_option_value* const* values_;
  uint64_t n_values_;
};

}  // namespace penstock::sdk
