// The keys of a configuration file. Each key is declared once, with its values, target and meaning.
// The reader, the text that ranks compare, `penstock config describe` and the tables of
// docs/configuration.md are made from this list.
#pragma once

#include "core/config/key.hpp"

namespace penstock {

// A table of a file.
struct ConfigTable {
  std::string_view title;  // "[runtime]"
  std::vector<ConfigKey> keys;
  std::vector<std::string> names() const;
};
const ConfigTable& scheme_keys();
const ConfigTable& transport_keys();
const ConfigTable& runtime_keys();
const ConfigTable& rule_keys();
const ConfigTable& match_keys();
const ConfigTable& switch_keys();
std::vector<const ConfigTable*> config_tables();  // all tables

}  // namespace penstock
