// The lists of keys.
#include "core/config/keys.hpp"

#include "core/tensor/dtype.hpp"

#include <planning/route.hpp>

namespace penstock {
namespace {

constexpr double kYear = 366.0 * 86400;  // more would overflow a transport's microseconds
constexpr double kLeastSeconds = 0.1;    // less is too short for a message

std::vector<std::string> route_names() {
  std::vector<std::string> names;
  for (const planning::Route& route : planning::kRoutes) names.emplace_back(route.name);
  return names;
}

std::vector<ConfigKey> keys_of_planning() {
  return {
      {.name = "deterministic",
       .initial = "false",
       .summary =
           "the same bits in every run: sums in ascending order of ranks, no plans made from "
           "measured times",
       .target = &RuntimeConfig::deterministic,
       .agreed = true},
      {.name = "seed",
       .initial = "1",
       .summary = "random numbers are a function of seed, step, gradient, element and rank",
       .target = &RuntimeConfig::seed,
       .agreed = true},
      {.name = "check_parameters",
       .initial = "\"warning\"",
       .summary = "how Penstock reports parameters that differ between ranks when the first "
                  "gradient is sent: `\"warning\"` names them once, `\"error\"` ends the step on "
                  "every rank, `\"off\"` does not compare them",
       .target = &RuntimeConfig::check_parameters,
       .choices = {"warning", "error", "off"},
       .agreed = true},
      {.name = "check_parameters_every",
       .initial = "0",
       .summary = "number of steps after which the parameters of the ranks are compared again "
                  "(exchanges, not steps, of `LocalSteps`, which compares anchors); 0: only before "
                  "the first gradient",
       .target = &RuntimeConfig::check_parameters_every,
       .agreed = true},
      {.name = "nonfinite",
       .initial = "\"void\"",
       .summary =
           "state of the memories after a step in which a gradient of a bucket is NaN or Inf on "
           "some rank; the result of the bucket is NaN on all ranks, and the run goes on. "
           "`\"void\"`: ranks with finite gradients keep them in their memories for later steps; "
           "`\"strict\"`: no memory changes; this takes one more small message per compressed "
           "bucket",
       .target = &RuntimeConfig::nonfinite,
       .choices = {"void", "strict"},
       .agreed = true},
      {.name = "forget",
       .initial = "true",
       .summary =
           "a backward whose gradients are thrown away does not change the kept state; `false` "
           "halves the memory for this state, but then throwing away is an error",
       .target = &RuntimeConfig::forget,
       .agreed = true},
      {.name = "forget_limit",
       .initial = "0",
       .summary =
           "after this number of successive steps whose gradients were thrown away, the memories "
           "are cleared; 0: never",
       .target = &RuntimeConfig::forget_limit,
       .agreed = true},
      {.name = "arena_limit_mb",
       .initial = "4096",
       .summary = "most memory for the payloads of one set, in MiB; if those of all ranks need "
                  "more, they come in slices of ranks",
       .target = &RuntimeConfig::arena_limit_mb,
       .minimum = 1,
       .maximum = 0x1p40,  // in bytes and summed, a set's memory must fit in 64 bits
       .agreed = true},    // it decides how many gathers a bucket has
      {.name = "hash_replicated_every",
       .initial = "0",
       .summary = "number of steps between two comparisons of replicated state between ranks; 0: "
                  "never",
       .target = &RuntimeConfig::hash_replicated_every,
       .agreed = true},
      {.name = "code_path",
       .initial = "\"auto\"",
       .summary = "instruction set of kernels; `\"auto\"`: measured and agreed",
       .target = &RuntimeConfig::code_path,
       .choices = {"auto", "portable", "avx2", "avx512"},
       .agreed = true},
      {.name = "worker_threads",
       .initial = "1",
       .summary =
           "threads that share the work of one call, the engine's included: for ranks with idle "
           "cores. Results keep their bits. Compressors that work on large matrices, select row by "
           "row or round by chance use them (docs/performance.md)",
       .target = &RuntimeConfig::worker_threads,
       .minimum = 1,
       .maximum = 256}};
}

std::vector<ConfigKey> keys_of_waiting() {
  return {
      {.name = "deadline_s",
       .initial = "60",
       .summary = "seconds without a sign of life until a rank counts as failed. A rank that lives "
                  "and is busy is waited for longer: `busy_limit_s`",
       .target = &RuntimeConfig::deadline_s,
       .minimum = kLeastSeconds,
       .maximum = kYear},
      {.name = "heartbeat_s",
       .initial = "a quarter of `deadline_s`, at most 5",
       .summary = "seconds between signs of life over the control connection; less than "
                  "`deadline_s`. Heartbeats by UDP are sent at least 64 times in `deadline_s`",
       .target = &RuntimeConfig::heartbeat_s,
       .minimum = 0.001,  // the heartbeat threads cannot be faster
       .maximum = kYear},
      {.name = "rendezvous_timeout_s",
       .initial = "1800",
       .summary = "seconds for which a run waits at its start for ranks that have not come yet, "
                  "with a warning every `stall_warning_s`",
       .target = &RuntimeConfig::rendezvous_timeout_s,
       .minimum = kLeastSeconds,
       .maximum = kYear},
      {.name = "stall_warning_s",
       .initial = "10",
       .summary =
           "seconds after which rank 0 warns by name of ranks that live and do not come to the "
           "run, a step, a set or an operation, and again after as long; each rank warns of its "
           "own plugin calls; 0: never",
       .target = &RuntimeConfig::stall_warning_s,
       .minimum = kLeastSeconds,
       .maximum = kYear,
       .or_never = true},
      {.name = "busy_limit_s",
       .initial = "1800",
       .summary =
           "seconds for which the run waits for ranks that are alive but busy (a validation, a "
           "checkpoint on one rank) before it ends, and nine tenths of it for a plugin call; 0: no "
           "limit. For steps and operations the value of rank 0 counts",
       .target = &RuntimeConfig::busy_limit_s,
       .minimum = kLeastSeconds,
       .maximum = kYear,
       .or_never = true}};
}

std::vector<ConfigKey> keys_of_the_run() {
  return {
      {.name = "plugin_path",
       .initial = "none",
       .summary = "a further folder of plugins, or a list of folders; a relative path counts from "
                  "the folder of this file",
       .target = &RuntimeConfig::plugin_path},
      {.name = "allow_insecure_paths",
       .initial = "false",
       .summary = "load plugins from places that everyone may write to",
       .target = &RuntimeConfig::allow_insecure_paths},
      {.name = "log_level",
       .initial = "\"warning\"",
       .summary =
           "least severe lines that are written. With `\"info\"` rank 0 writes two lines for each "
           "set: at its start the file, the scheme, ranks, hosts and the plan with the bytes it "
           "moves; at its end the bytes moved, the share of time waited and the slowest rank",
       .target = &RuntimeConfig::log_level,
       .choices = {"debug", "info", "warning", "error"}},
      {.name = "timeline",
       .initial = "none",
       .summary =
           "file for a timeline of all stages and named operations, for Perfetto, written as the "
           "run "
           "goes; a relative path counts from the working directory: rank 0 writes this file, the "
           "others add `.rankN` to its name",
       .target = &RuntimeConfig::timeline},
      {.name = "profile",
       .initial = "none",
       .summary = "file for the profile of the model that trains, for `penstock plan --model "
                  "FILE`: rank 0 "
                  "writes it after 22 steps and when the set ends, those of further sets with "
                  "`.2`, `.3` in "
                  "the name; a relative path counts from the working directory",
       .target = &RuntimeConfig::profile}};
}

ConfigTable make_runtime_keys() {
  ConfigTable table{"[runtime]", keys_of_the_run()};
  for (const auto& more : {keys_of_waiting(), keys_of_planning()})
    table.keys.insert(table.keys.end(), more.begin(), more.end());
  return table;
}

ConfigTable make_scheme_keys() {
  using namespace defaults;
  static const std::string kCompressor = quoted_text(defaults::kCompressor),
                           kMemory = quoted_text(defaults::kMemory),
                           kScheduler = quoted_text(defaults::kScheduler);
  static const std::string kCollective = fmt::format(
      "instance that moves payloads. `\"auto\"`: the transport that the program lends (`\"{}\"`), "
      "else the transport that fits the launcher: `{}` under mpirun, `{}` under torchrun or srun, "
      "and in a run of one rank `{}` or `{}`",
      kBorrowedCollective, kUnderMpi.front(), kInStep.front(), kAlone.front(), kAlone.back());
  return {
      "[scheme]",
      {{.name = "compressor",
        .initial = kCompressor,
        .summary = "instance that turns gradients into payloads",
        .target = &Scheme::compressor},
       {.name = "memory",
        .initial = kMemory,
        .summary = "instance that keeps the values that were not sent",
        .target = &Scheme::memory},
       {.name = "owner_memory",
        .initial = "as `memory`, or as a rule says",
        .summary = "instance for the sums that owners encode again; only with route `\"shard\"`",
        .target = &Scheme::owner_memory},
       {.name = "collective",
        .initial = "\"auto\"",
        .summary = kCollective,
        .target = &Scheme::collective},
       {.name = "transport",
        .initial = "none",
        .summary = "transport instance that carries the messages of a composite collective, or "
                   "`\"auto\"`; only with a composite",
        .target = &Scheme::transport},
       {.name = "scheduler",
        .initial = kScheduler,
        .summary = "instance that makes buckets and puts them in order",
        .target = &Scheme::scheduler},
       {.name = "route",
        .initial = "`\"flat\"`, or `\"split\"` with a scheduler that makes no other route",
        .summary = "`\"flat\"`: one exchange among all ranks; `\"split\"`: reduce-scatter, then "
                   "all-gather; `\"hierarchical\"`: dense sums within each host, compressed "
                   "between hosts; `\"shard\"`: compressed to the owners of parts, which add them, "
                   "then compressed from the owners to all",
        .target = &Scheme::route,
        .choices = route_names()},
       {.name = "apply",
        .initial = "\"current\"",
        .summary = "the mean that the optimizer applies in a step: `\"current\"`: of this step; "
                   "`\"previous\"`: of the step before, so that the exchange has a whole step of "
                   "time; only with `DistributedOptimizer` of Python, and no switch changes it",
        .target = &Scheme::apply,
        .choices = {"current", "previous"}},
       {.name = "candidates",
        .initial = "none",
        .summary = "compressor instances that a scheduler may choose from; two or more only with a "
                   "scheduler that chooses",
        .target = &Scheme::candidates}}};
}

}  // namespace

const ConfigTable& scheme_keys() {
  static const ConfigTable table = make_scheme_keys();
  return table;
}

const ConfigTable& transport_keys() {
  static const ConfigTable table{
      "[transport]",
      {{.name = "local",
        .initial = "as among all ranks",
        .summary = "collective instance that carries the messages between ranks of one host; only "
                   "route `\"hierarchical\"` has such messages",
        .target = &Scheme::local_transport},
       {.name = "cross",
        .initial = "as among all ranks",
        .summary = "collective instance that carries the messages between hosts on route "
                   "`\"hierarchical\"`",
        .target = &Scheme::cross_transport},
       {.name = "device",
        .initial = "none: through pinned host memory",
        .summary =
            "collective instance that carries sums and pairs (or only pairs) of device-resident "
            "gradients from device to device; the headers of these messages go over `collective`",
        .target = &Scheme::device_transport}}};
  return table;
}

const ConfigTable& runtime_keys() {
  static const ConfigTable table = make_runtime_keys();
  return table;
}

const ConfigTable& rule_keys() {
  static const ConfigTable table{
      "[[rule]]",
      {{.name = "match",
        .initial = "required",
        .summary =
            "a table of the conditions below; a gradient matches if every given condition holds",
        .form = "table"},
       {.name = "compressor",
        .initial = "as in `[scheme]`",
        .summary = "instance for the gradients that match",
        .form = "name"},
       {.name = "memory",
        .initial = "as in `[scheme]`",
        .summary = "instance for the gradients that match",
        .form = "name"},
       {.name = "candidates",
        .initial = "as in `[scheme]`",
        .summary = "compressor instances for the gradients that match",
        .form = "names"},
       {.name = "options",
        .initial = "none",
        .summary = "other options of instances for these gradients: `options = { "
                   "compressor.NAME.density = 0.1 }`",
        .form = "table"}}};
  return table;
}

const ConfigTable& match_keys() {
  static const ConfigTable table{
      "match",
      {{.name = "name",
        .initial = "any",
        .summary =
            "a glob (`*`, `?`, `[a-z]`), or a list of globs of which the name fits at least one",
        .form = "string or strings"},
       {.name = "dims",
        .initial = "any",
        .summary = "the number of dimensions: `1`, or a range `{ min = 2, max = 4 }` whose bounds "
                   "may be left out",
        .form = "integer or table"},
       {.name = "elements",
        .initial = "any",
        .summary = "the number of elements, in the form of `dims`",
        .form = "integer or table"},
       {.name = "dtype",
        .initial = "any",
        .summary = "the type of the gradient's elements",
        .form = "one of",
        .choices = {kDtypeNames.begin() + 1, kDtypeNames.end()}}}};
  return table;
}

const ConfigTable& switch_keys() {
  static const ConfigTable table{
      "[[switch]]",
      {{.name = "at_step",
        .initial = "required",
        .summary = "the first step for which it holds; steps count from 0",
        .form = "integer"},
       {.name = "set",
        .initial = "required",
        .summary = "keys of `[scheme]` as `scheme.KEY`, options as `KIND.NAME.OPTION`",
        .form = "table"}}};
  return table;
}

std::vector<std::string> ConfigTable::names() const {
  std::vector<std::string> names;
  for (const ConfigKey& key : keys) names.emplace_back(key.name);
  return names;
}

std::vector<const ConfigTable*> config_tables() {
  return {&scheme_keys(), &rule_keys(),      &match_keys(),
          &switch_keys(), &transport_keys(), &runtime_keys()};
}

}  // namespace penstock
