// Reads a tree into a Config, table by table, in the order of their dependencies.
#pragma once

#include "core/config/load.hpp"
#include "core/config/tree.hpp"

namespace penstock {

class ConfigReader {
 public:
  // Relative paths in the document are relative to `directory`.
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
  // Checks facts that need the whole file: overridden instances exist, and every rule's overrides
  // take effect.
  Status check_references() const;
  // Refuses a table of an instance that no stage uses, because it would have no effect.
  Status check_used() const;
  Status check_overridden(const std::map<InstanceKey, Settings>& options,
                          const std::vector<InstanceKey>& there) const;
  // The instances of all stages, each once, in the order of their first use.
  std::vector<InstanceKey> instances_of_all_stages() const;
  Status check_rule_overrides(size_t index) const;

  std::string directory_;
  bool allow_runtime_;
  Config config_;
};

}  // namespace penstock
