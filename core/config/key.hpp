// One key of a configuration file: what it takes and where it goes; how its value is read, copied,
// and written as text.
#pragma once

#include "core/config/config.hpp"
#include "core/config/tree.hpp"

#include <cmath>

namespace penstock {

struct ConfigKey {
  std::string_view name;
  std::string_view initial;  // what holds without it: as TOML, or in words
  std::string_view summary;
  // Where its value goes; nothing for keys of [[rule]] and [[switch]], which are read one by one.
  std::variant<std::monostate, bool RuntimeConfig::*, uint64_t RuntimeConfig::*,
               double RuntimeConfig::*, std::string RuntimeConfig::*, Nonfinite RuntimeConfig::*,
               std::vector<std::string> RuntimeConfig::*, std::string Scheme::*, uint32_t Scheme::*,
               std::vector<std::string> Scheme::*>
      target = {};
  std::string_view form = {};  // of a value without target
  double minimum = 0, maximum = HUGE_VAL;
  bool or_never = false;  // 0 too
  std::vector<std::string> choices = {};
  bool agreed = false;  // equal on all ranks

  std::string type() const;   // "integer", "one of", ...
  std::string range() const;  // "1 to 256", "\"void\", \"strict\""; empty where anything goes
};

// Reads one key into its owner, which is RuntimeConfig or Scheme. `full` names it in messages.
template <typename Owner>
Status read_key(const ConfigKey& key, const Node& node, const std::string& full, Owner& owner);
// Its value as TOML.
template <typename Owner>
std::string key_text(const ConfigKey& key, const Owner& owner);
void copy_key(const ConfigKey& key, const Scheme& from, Scheme& to);

// An array of instances, each once.
Result<std::vector<std::string>> read_candidates(const Node& node, std::string_view key);

}  // namespace penstock
