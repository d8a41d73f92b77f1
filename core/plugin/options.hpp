// Turns the options that a plugin declares and the settings of the TOML into the values that
// `create` receives.
#pragma once

#include "core/config/config.hpp"

#include <penstock/option.h>

#include <memory>
#include <string>
#include <vector>

namespace penstock {

// One value per declared option, in declaration order, defaults filled in, ranges checked. Owns all
// texts; movable, and the pointers stay valid.
class OptionValues {
 public:
  const penstock_option_value* const* data() const { return pointers_.data(); }
  uint64_t size() const { return pointers_.size(); }
  // Null if no option has this name.
  const penstock_option_value* find(std::string_view name) const;

  // `name = value` lines in declaration order; RANK_LOCAL options only if requested.
  std::vector<std::string> lines(bool with_rank_local = false) const;

 private:
  friend Result<OptionValues> resolve_options(const penstock_option* const*, uint64_t,
                                              const Settings&, const std::string&, const Location&);
  struct Entry {
    penstock_option_value value{};
    std::string name;
    std::string text;
    bool rank_local = false;
  };
  std::vector<std::unique_ptr<Entry>> entries_;
  std::vector<const penstock_option_value*> pointers_;
};

// INVALID_ARGUMENT with file, line and column for an unknown key (names the nearest), a wrong type,
// a value out of range or not among the choices, a missing required option. An integer is accepted
// for a real. `instance` names the table in messages, for example "compressor.topk"; `where` is its
// place.
Result<OptionValues> resolve_options(const penstock_option* const* options, uint64_t n_options,
                                     const Settings& settings, const std::string& instance,
                                     const Location& where);

// Like resolve_options(), for only some settings of an instance: a missing option is no error.
Status check_settings(const penstock_option* const* options, uint64_t n_options,
                      const Settings& settings, const std::string& instance);

// "bool", "integer", "real", "string", "choice".
std::string_view option_type_name(uint32_t type);
// Used in messages: "(0, 1]", "at least 1", "one of a, b"; empty if every value is legal.
std::string option_range_text(const penstock_option& option);
// The default as TOML; empty for a required option.
std::string option_default_text(const penstock_option& option);

// Checks the declarations themselves: size, names, types, bounds, default within bounds.
Status check_option_declarations(const penstock_option* const* options, uint64_t n_options);

}  // namespace penstock
