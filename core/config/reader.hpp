// Reads a tree into a Config, table by table, in the order in which they depend on each other.
#pragma once

#include "core/config/load.hpp"
#include "core/config/tree.hpp"

namespace penstock {

class ConfigReader {
 public:
  // `directory` is where relative paths in the document count from.
  ConfigReader(std::string directory, bool allow_runtime)
      : directory_(std::move(directory)), allow_runtime_(allow_runtime) {}

  Result<Config> read(const Node& root, const std::string& origin);

 private:
  using InstanceKey = std::pair<Kind, std::string>;

  Status read_instances(Kind kind, const Node& node);
  Status read_instance(Kind kind, const std::string& name, const Node& node);
  Status read_scheme(const Node& node, const std::string& title, Scheme& scheme);
  Status read_rules(const Node& node);
  Status read_switches(const Node& node);
  Result<Switch> read_switch(const Node& node, const std::string& title);
  Status read_transport(const Node& node);
  Status read_runtime(const Node& node);
  Status only_of_the_run(const Node& node, std::string_view table) const;
  // Facts that need the whole file: overridden instances exist, and every rule's overrides take
  // effect.
  Status check_references() const;
  // An instance that no stage names would be a table without effect.
  Status check_used() const;
  Status check_overridden(const std::map<InstanceKey, Settings>& options,
                          const std::vector<InstanceKey>& there) const;
  // Those of any stage, each once, in the order in which they appear.
  std::vector<InstanceKey> instances_of_all_stages() const;
  Status check_rule_overrides(size_t index) const;

  std::string directory_;
  bool allow_runtime_;
  Config config_;
};

}  // namespace penstock
