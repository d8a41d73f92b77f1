// The keys of a configuration file, each declared once: what it takes, where it goes, and what it
// means. From this list come the reader, the text that ranks compare, `penstock config describe`
// and the tables of docs/configuration.md.
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
std::vector<const ConfigTable*> config_tables();  // all of them

}  // namespace penstock
