// The contents of a TOML file as plain structs. This code knows neither toml++ nor any plugin.
//
// Config is the whole file. Scheme is the configuration in force at one step, after all switches up
// to that step. Options are kept as typed settings with their place in the file; plugin/resolve.hpp
// checks them against the declarations of the plugins.
#pragma once

#include "core/base/kind.hpp"
#include "core/base/status.hpp"
#include "core/config/defaults.hpp"

#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace penstock {

// The place of a value. Line 0: the value is not from a file (a default, or an environment
// variable, which `file` names).
struct Location {
  std::string file;
  uint32_t line = 0;
  uint32_t column = 0;
  std::string text() const;  // "FILE:LINE:COLUMN", or FILE alone
};

// `text` as a quoted TOML string. Quotes, backslashes, control characters and invisible marks are
// escaped.
std::string quoted_text(std::string_view text);

struct Setting {
  std::variant<bool, int64_t, double, std::string> value;
  Location where;
  std::string text() const;  // as TOML: true, 3, 0.25, "name"; reals with all their digits
};

using Settings = std::map<std::string, Setting>;

// `[compressor.NAME]`, or a named instance without a table of its own.
struct InstanceConfig {
  Kind kind = Kind::compressor;
  std::string name;    // name of the instance; derived instances are called "NAME@rule2"
  std::string plugin;  // NAME of the plugin id KIND/NAME
  Settings options;
  Location where;
  std::string id() const;  // "compressor/NAME"
};

// The facts of a gradient that rules test.
struct GradientFacts {
  std::string_view name;
  uint64_t n_dims = 0;
  uint64_t numel = 0;
  uint32_t dtype = PENSTOCK_FLOAT32;
};

struct Range {
  uint64_t minimum = 0;
  uint64_t maximum = UINT64_MAX;  // inclusive
  bool holds(uint64_t value) const { return value >= minimum && value <= maximum; }
  std::string text() const;  // such as "1 to 9", "up to 9" or "from 1"
};

// The conditions of a rule; a gradient must satisfy all given conditions.
struct Match {
  std::vector<std::string> names;  // globs (* ? [a-z]), at least one must match; empty: any name
  std::optional<Range> dims;
  std::optional<Range> elements;
  std::optional<uint32_t> dtype;
  bool holds(const GradientFacts& gradient) const;
  std::string text() const;  // such as "{ dims = 1, elements = up to 9999 }"
};

// `[[rule]]`. Empty names mean "as in [scheme]".
struct Rule {
  Match match;
  std::string compressor;
  std::string memory;
  std::vector<std::string> candidates;
  // (kind, instance) -> options that differ for this rule's gradients. Only the kinds compressor
  // and memory.
  std::map<std::pair<Kind, std::string>, Settings> overrides;
  Location where;
};

// The instances chosen for a gradient: names of instances in Scheme::instances.
struct Choice {
  std::string compressor;
  std::string memory;
  std::vector<std::string> candidates;  // compressors; the first is `compressor`
  size_t rule = 0;                      // 1 for the first rule of the file; 0: [scheme]
};

// The name that stands for the transport that fits the run's launcher (settle_transport).
constexpr const char* kAutoTransport = "auto";

// The configuration in force at a step.
struct Scheme {
  std::string compressor{defaults::kCompressor};
  std::string memory{defaults::kMemory};
  // Memory of sums that their owner encodes again; empty: the gradients' own memory.
  std::string owner_memory;
  std::string collective = kAutoTransport;
  std::string transport;  // only with a composite collective; empty: none given
  // [transport]: transports of the levels of a run, equal in all stages; empty: the transport of
  // all ranks.
  std::string local_transport, cross_transport;
  std::string device_transport;  // between device memories; empty: messages lie in host memory
  std::string scheduler{defaults::kScheduler};
  uint32_t route = PENSTOCK_ROUTE_FLAT;
  // The step whose mean the optimizer applies: "current", or "previous", one step late. Equal in
  // all stages.
  std::string apply{"current"};
  bool applies_previous() const { return apply == "previous"; }
  std::vector<std::string>
      candidates;  // compressors that a scheduler may choose from, unless a rule names others
  std::vector<Rule> rules;
  // Every instance that can be used, instances derived by rules included.
  std::map<std::pair<Kind, std::string>, InstanceConfig> instances;
  std::map<std::string, Location> where;  // places of the given keys of [scheme]

  // The first matching rule decides; [scheme] supplies the keys that the rule does not set.
  Choice choose(const GradientFacts& gradient) const;
  // The choice for gradients that match the rule with this number, from 1; 0: gradients without a
  // rule.
  Choice choice_of(size_t rule_number) const;
  // Null if no instance has this name.
  const InstanceConfig* find(Kind kind, std::string_view name) const;
};

// "flat", "split", "hierarchical", "shard"; "unknown" otherwise.
std::string_view route_name(uint32_t route);

// `[[switch]]`: replaces the keys it names from `at_step` on.
struct Switch {
  uint64_t at_step = 0;
  Scheme scheme;  // only the keys in scheme.where count
  std::map<std::pair<Kind, std::string>, Settings> options;
  Location where;
};

enum class Nonfinite { void_bucket, strict };

// `[runtime]`. `deterministic`, `seed`, `check_parameters`, `check_parameters_every`, `nonfinite`,
// `forget`, `forget_limit`, `hash_replicated_every` and `code_path` must be equal on all ranks,
// because they decide which messages are sent and the contents of messages. Each rank may set the
// other keys for itself.
struct RuntimeConfig {
  std::vector<std::string> plugin_path;  // absolute
  bool allow_insecure_paths = false;
  bool deterministic = false;
  uint64_t seed = 1;
  std::string check_parameters = "warning";  // warning or error: before the first step; or off
  uint64_t check_parameters_every = 0;       // steps between further comparisons; 0: none
  double deadline_s = 60;
  double heartbeat_s = 5;              // default: a quarter of the deadline, at most 5
  double rendezvous_timeout_s = 1800;  // longest wait for ranks that have not come to the run yet
  // Live ranks that do not come: warn after this time, and repeat at this interval; 0: never.
  double stall_warning_s = 10;
  double busy_limit_s = 1800;  // longest wait for such ranks; 0: no limit
  Nonfinite nonfinite = Nonfinite::void_bucket;
  bool forget = true;
  // After so many forgotten steps in a row, memories are emptied; 0: never.
  uint64_t forget_limit = 0;
  uint64_t arena_limit_mb = 4096;
  std::string log_level = "warning";  // debug, info, warning, error
  std::string timeline;  // path as given, relative to the working directory; empty: none
  std::string profile;   // a path like `timeline`; empty: none
  uint64_t hash_replicated_every = 0;  // steps; 0: never
  std::string code_path = "auto";      // code path of kernels: measured, or portable, avx2, avx512
  // Threads that share the work of a call, the engine's thread included.
  uint64_t worker_threads = 1;
};

class Config {
 public:
  // The configuration in force at a step of a set: every switch with at_step <= step, in the order
  // of steps.
  Scheme at_step(uint64_t step) const;
  // The first step after `step` at which the configuration changes.
  std::optional<uint64_t> next_switch_after(uint64_t step) const;
  // Step 0 and every step at which a switch changes the configuration, ascending, each once.
  std::vector<uint64_t> stages() const;
  // Each place of the file that gives options to an instance or names an instance, with the
  // settings of that place alone; also places that a switch replaces before they can be used.
  std::vector<InstanceConfig> given() const;
  // Sets the transport to the instance `name` of a plugin if the file says "auto" or gives none.
  void settle_transport(const std::string& name, const std::string& plugin);

  const RuntimeConfig& runtime() const { return runtime_; }
  // The file, or the name given for a text; empty for the defaults.
  const std::string& origin() const { return origin_; }
  // The values that Horovod's environment variables changed, one line each, for the log.
  const std::vector<std::string>& mapped() const { return mapped_; }

 private:
  friend class ConfigReader;
  friend class EnvironmentMapping;
  // Positions in switches_, ascending.
  using Setters = std::vector<size_t>;
  // Stores the switches and records the keys that each switch sets.
  void take_switches(std::vector<Switch> switches);
  // The last of `setters` in force at the step; null if there is none.
  const Switch* last_of(const Setters& setters, uint64_t step) const;

  Scheme base_;                   // without switches; instances without instances derived by rules
  std::vector<Switch> switches_;  // ascending steps, file order among equals
  // The base or switches that set each key of [scheme] and each option. at_step looks values up
  // here instead of replaying all switches, because a file may have a switch per step.
  std::map<std::string, Setters, std::less<>> key_setters_;
  std::map<std::pair<Kind, std::string>, std::map<std::string, Setters>> option_setters_;
  RuntimeConfig runtime_;
  std::set<std::string, std::less<>> given_;  // keys of [runtime]
  std::string origin_;
  std::vector<std::string> mapped_;
};

}  // namespace penstock
