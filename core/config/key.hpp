// One key of a configuration file: its legal values, the member that stores it, and functions that
// read it, copy it and write it as text.
#pragma once

#include "core/config/config.hpp"
#include "core/config/tree.hpp"

#include <cmath>

namespace penstock {

struct ConfigKey {
  std::string_view name;
  std::string_view initial;  // the value without the key, as TOML or in words
  std::string_view summary;
  // The member that stores the value; empty for keys of [[rule]] and [[switch]], which have their
  // own code.
  std::variant<std::monostate, bool RuntimeConfig::*, uint64_t RuntimeConfig::*,
               double RuntimeConfig::*, std::string RuntimeConfig::*, Nonfinite RuntimeConfig::*,
               std::vector<std::string> RuntimeConfig::*, std::string Scheme::*, uint32_t Scheme::*,
               std::vector<std::string> Scheme::*>
      target = {};
  std::string_view form = {};  // form of a value without target
  double minimum = 0, maximum = HUGE_VAL;
  bool or_never = false;  // 0 is legal too
  std::vector<std::string> choices = {};
  bool agreed = false;  // must be equal on all ranks

  std::string type() const;   // the type in words: "integer", "one of", ...
  std::string range() const;  // "1 to 256", "\"void\", \"strict\""; empty if there is no limit
};

// Reads one key into its owner, which is RuntimeConfig or Scheme. `full` names the key in messages.
template <typename Owner>
Status read_key(const ConfigKey& key, const Node& node, const std::string& full, Owner& owner);
// The value of the key as TOML.
template <typename Owner>
std::string key_text(const ConfigKey& key, const Owner& owner);
void copy_key(const ConfigKey& key, const Scheme& from, Scheme& to);

// An array of instances, each once.
Result<std::vector<std::string>> read_candidates(const Node& node, std::string_view key);

}  // namespace penstock
