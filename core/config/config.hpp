// What a TOML file says, as plain structs. Nothing here knows toml++ or any plugin.
//
// Config is the whole file; Scheme is what is in force at one step, after all switches up to it.
// Options are kept as typed settings with the place they came from; plugin/resolve.hpp checks them
// against what the plugins declare.
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

// Where a value came from. Line 0: not from a file (a default, or an environment variable named in
// `file`).
struct Location {
  std::string file;
  uint32_t line = 0;
  uint32_t column = 0;
  std::string text() const;  // "FILE:LINE:COLUMN", or FILE alone
};

// `text` as a TOML string: quotes around it, quotes, backslashes, control characters and
// marks that cannot be seen escaped.
std::string quoted_text(std::string_view text);

struct Setting {
  std::variant<bool, int64_t, double, std::string> value;
  Location where;
  std::string text() const;  // as TOML: true, 3, 0.25, "name"; reals with all their digits
};

using Settings = std::map<std::string, Setting>;

// `[compressor.NAME]`, or an instance that is referred to and has no table of its own.
struct InstanceConfig {
  Kind kind = Kind::compressor;
  std::string name;    // of the instance; derived ones are called "NAME@rule2"
  std::string plugin;  // NAME of the plugin id KIND/NAME
  Settings options;
  Location where;
  std::string id() const;  // "compressor/NAME"
};

// The facts of a gradient that rules look at.
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
};

// What a rule asks of a gradient; all that is given must hold.
struct Match {
  std::vector<std::string> names;  // globs (* ? [a-z]), one of which must fit; none: any name
  std::optional<Range> dims;
  std::optional<Range> elements;
  std::optional<uint32_t> dtype;
  bool holds(const GradientFacts& gradient) const;
};

// `[[rule]]`. Empty names mean "as in [scheme]".
struct Rule {
  Match match;
  std::string compressor;
  std::string memory;
  std::vector<std::string> candidates;
  // (kind, instance) -> options that differ for this rule's gradients; kinds compressor and memory
  // only.
  std::map<std::pair<Kind, std::string>, Settings> overrides;
  Location where;
};

// What a gradient gets: names of instances in Scheme::instances.
struct Choice {
  std::string compressor;
  std::string memory;
  std::vector<std::string> candidates;  // compressors; the first is `compressor`
  size_t rule = 0;                      // 1 for the first rule of the file; 0: [scheme]
};

// The name that stands for the transport that a run's launcher suggests (settle_transport).
constexpr const char* kAutoTransport = "auto";

// The configuration in force at a step.
struct Scheme {
  std::string compressor{defaults::kCompressor};
  std::string memory{defaults::kMemory};
  std::string owner_memory;  // of sums that their owner encodes again; empty: the gradients' own
  std::string collective = kAutoTransport;
  std::string transport;  // only with a composite collective; empty: none given
  // [transport]: of the levels of a run, the same in all stages; empty: as among all ranks.
  std::string local_transport, cross_transport;
  std::string device_transport;  // between memories of devices; empty: messages lie in host memory
  std::string scheduler{defaults::kScheduler};
  uint32_t route = PENSTOCK_ROUTE_FLAT;
  std::vector<std::string>
      candidates;  // what a scheduler may choose from where no rule says otherwise
  std::vector<Rule> rules;
  // Every instance that can be used, those derived by rules included.
  std::map<std::pair<Kind, std::string>, InstanceConfig> instances;
  std::map<std::string, Location> where;  // of the keys of [scheme] that were given

  // First match wins; what the rule leaves open comes from [scheme].
  Choice choose(const GradientFacts& gradient) const;
  // What gradients get that the rule of this number matches, from 1; 0: those that no rule matches.
  Choice choice_of(size_t rule_number) const;
  // Null when there is none of that name.
  const InstanceConfig* find(Kind kind, std::string_view name) const;
};

// "flat", "split", "hierarchical", "shard"; "unknown" otherwise.
std::string_view route_name(uint32_t route);

// `[[switch]]`: replaces the keys it names from `at_step` on.
struct Switch {
  uint64_t at_step = 0;
  Scheme scheme;  // of it the keys that scheme.where names
  std::map<std::pair<Kind, std::string>, Settings> options;
  Location where;
};

enum class Nonfinite { void_bucket, strict };

// `[runtime]`. `deterministic`, `seed`, `check_parameters`, `nonfinite`, `forget`, `forget_limit`,
// `hash_replicated_every` and `code_path` must be equal on all ranks, because they decide which
// messages are sent and what is in them; the rest is each rank's own.
struct RuntimeConfig {
  std::vector<std::string> plugin_path;  // absolute
  bool allow_insecure_paths = false;
  bool deterministic = false;
  uint64_t seed = 1;
  std::string check_parameters = "warning";  // or error: before the first step; off
  double deadline_s = 60;
  double heartbeat_s = 5;           // default: a quarter of the deadline, at most 5
  double meeting_timeout_s = 1800;  // for ranks that have not come to the run yet
  // Ranks that live and do not come: warned of after this, and again; 0: never.
  double stall_warning_s = 10;
  double busy_limit_s = 1800;  // and waited for at most this long; 0: without an end
  Nonfinite nonfinite = Nonfinite::void_bucket;
  bool forget = true;
  uint64_t forget_limit = 0;  // forgotten steps running after which memories are emptied; 0: never
  uint64_t arena_limit_mb = 4096;
  std::string log_level = "warning";  // debug, info, warning, error
  std::string timeline;  // path as given, relative to the working directory; empty: none
  std::string profile;   // the same
  uint64_t hash_replicated_every = 0;  // steps; 0: never
  std::string code_path = "auto";      // of kernels: measured, or portable, avx2, avx512
  uint64_t worker_threads = 1;         // that share the work of a call, the engine's included
};

class Config {
 public:
  // The configuration in force at a set's step: every switch with at_step <= step, in order of
  // steps.
  Scheme at_step(uint64_t step) const;
  // The first step after `step` at which something changes.
  std::optional<uint64_t> next_switch_after(uint64_t step) const;
  // Step 0 and every step at which a switch changes something, ascending, each once.
  std::vector<uint64_t> stages() const;
  // Each place of the file that gives options to an instance or names one, with what that place
  // itself says: also where a switch replaces it before anything could use it.
  std::vector<InstanceConfig> given() const;
  // Puts the instance `name` of a plugin where the file says "auto", or nothing at all.
  void settle_transport(const std::string& name, const std::string& plugin);

  const RuntimeConfig& runtime() const { return runtime_; }
  // The file, or the name given for a text; empty for the defaults.
  const std::string& origin() const { return origin_; }
  // What Horovod's environment variables changed, one line each, for the log.
  const std::vector<std::string>& mapped() const { return mapped_; }

 private:
  friend class ConfigReader;
  friend class EnvironmentMapping;
  // Positions in switches_, ascending.
  using Setters = std::vector<size_t>;
  // Takes the switches and notes which of them set what.
  void take_switches(std::vector<Switch> switches);
  // The last of these that is in force at the step; null where none is.
  const Switch* last_of(const Setters& setters, uint64_t step) const;

  Scheme base_;                   // without switches; instances without those that rules derive
  std::vector<Switch> switches_;  // ascending steps, file order among equals
  // What each key of [scheme] and each option is set by: at_step looks up what holds instead of
  // replaying all switches, of which there may be one per step.
  std::map<std::string, Setters, std::less<>> key_setters_;
  std::map<std::pair<Kind, std::string>, std::map<std::string, Setters>> option_setters_;
  RuntimeConfig runtime_;
  std::set<std::string, std::less<>> given_;  // keys of [runtime]
  std::string origin_;
  std::vector<std::string> mapped_;
};

}  // namespace penstock
