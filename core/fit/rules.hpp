// Which plugins and frontends go together: a pure function over plain facts, so that a wrong pair
// is refused at start-up, naming both sides and a combination that works, and never met at step
// 1000.
#pragma once

#include "core/base/status.hpp"
#include "core/plugin/registry.hpp"

#include <penstock/compressor.h>
#include <penstock/memory.h>
#include <penstock/scheduler.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace penstock {

// What a compressor says of itself and, in its need, of an item; joined over phases and rounds.
struct CompressorFacts {
  std::string name;  // instance, for messages
  uint64_t device_types = 0;
  uint32_t traits = 0;          // PENSTOCK_COMPRESSOR_*
  uint32_t need_flags = 0;      // PENSTOCK_NEED_*: those that hold in every phase
  uint32_t n_rounds = 0;        // the most of any phase
  bool sums = false;            // some round sums
  bool gathers = false;         // some round gathers
  bool gathers_sparse = false;  // the last round gathers an INDICES and a VALUES section of float32
  bool gathers_pairs = false;   // some round gathers such sections, whatever the type of values
  bool same_bits = false;       // some round feeds replicated state
  bool final_result = false;    // RESULT_FINAL
  bool replicates = false;      // keeps state that is equal on all ranks
  bool operator==(const CompressorFacts&) const = default;
};

struct MemoryFacts {
  std::string name;
  bool owns_momentum = false;
  bool keeps = false;  // has MASS state
  bool has_give_back = false;
  bool finishes = false;          // ends with the result, on every rank
  bool adds_rest = false;         // what is left out comes later, although nothing is kept
  bool shifts = false;            // work is a difference
  bool same_bits = false;         // has replicated state, which sums change
  bool records = false;           // looks at what was sent
  bool works_in_scratch = false;  // work is neither the gradient nor a state
  bool operator==(const MemoryFacts&) const = default;
};

// Gradients with the same compressor, memory and facts.
struct FitGroup {
  std::string example;  // name of one of them
  CompressorFacts compressor;
  MemoryFacts memory;
  MemoryFacts owner_memory;  // of sums, on route shard
  int32_t device_type = PENSTOCK_DEVICE_CPU;
};

struct CollectiveFacts {
  std::string name;
  uint32_t flags = 0;  // PENSTOCK_COLLECTIVE_*
  uint64_t patterns = 0;
  uint64_t device_types = 0;
  uint64_t device_patterns = 0;  // of patterns, those for memory of devices
  uint64_t dtypes = 0;           // that it adds up
  // Adds up what lies on devices.
  bool sums_on_devices() const {
    return (device_patterns & PENSTOCK_PATTERN_BIT(PENSTOCK_ALL_REDUCE)) != 0;
  }
  // And what the ranks of a host add for their owners, and hear from them.
  bool scatters_on_devices() const {
    constexpr uint64_t kBoth =
        PENSTOCK_PATTERN_BIT(PENSTOCK_REDUCE_SCATTER) | PENSTOCK_PATTERN_BIT(PENSTOCK_ALL_GATHER);
    return (device_patterns & kBoth) == kBoth;
  }
};

struct SchedulerFacts {
  std::string name;
  uint64_t routes = 0;
  uint32_t flags = 0;  // PENSTOCK_SCHEDULER_*
};

class Offers;

struct FitInput {
  std::vector<FitGroup> groups;
  CollectiveFacts collective;  // the composite one where the scheme has one, else the transport
  bool has_transport = false;  // the scheme gives one
  CollectiveFacts transport;
  std::map<uint32_t, CollectiveFacts> of_level;  // where [transport] names one, by PENSTOCK_LEVEL_*
  std::optional<CollectiveFacts> between_devices;  // of transport.device
  SchedulerFacts scheduler;
  uint32_t frontend = 0;  // PENSTOCK_SET_* of runtime.h
  uint32_t route = PENSTOCK_ROUTE_FLAT;
  bool names_owner_memory = false;
  bool deterministic = false;
  uint64_t arena_bytes = 0;  // 0: not yet known
  uint64_t arena_limit_bytes = 0;
  uint32_t world = 1;
  uint64_t most_candidates = 1;    // compressors that some gradient may be given to
  const Offers* offers = nullptr;  // what messages may name instead; null: nobody knows
};

// Adds a group unless one with the same facts is there. One pair of instances may have several:
// Power-SGD's facts of a matrix and of a vector differ.
void add_group(FitInput& input, FitGroup group);

// What the core has to say although everything fits.
struct FitAdvice {
  std::vector<std::string> warnings;  // for the log
};

// FAILED_PRECONDITION for a misfit. Pure, but that `offers` may load plugins to write a message.
// The first misfit is returned, in the order of the lines of check_fit.
Result<FitAdvice> check_fit(const FitInput& input);

// Whether what a step needs has room: FAILED_PRECONDITION says how much it is. Pure.
Status check_size(const FitInput& input);

// Whether a collective can carry what lies in host memory, and whether one can be transport.device,
// as it says before it has joined or then: FAILED_PRECONDITION says why not, and where it belongs.
// Pure.
Status check_reads_host_memory(const CollectiveFacts& collective);
Status check_device_transport(const CollectiveFacts& collective, bool has_joined,
                              const Offers* offers = nullptr);
Status check_between_devices(const FitInput& input, FitAdvice& advice);

// Whether what is compressed and kept so can take a route: FAILED_PRECONDITION says why not, and
// what could. Pure.
Status check_route_of(uint32_t route, const FitGroup& group);

// Route shard as a whole, and an owner's memory without it.
Status check_shard_as_a_whole(const FitInput& input, FitAdvice& advice);

// `compressor "NAME" (for layer1.weight and others)`.
std::string named_for(const FitGroup& group, std::string_view kind, const std::string& name);

// Adds the facts of a further phase of the same item: plan's needs are only valid until the next
// plan call.
void merge_phase(CompressorFacts& facts, const CompressorFacts& next);
// Facts of what describe and plan said. `n` needs of one item, one per phase.
CompressorFacts compressor_facts(std::string name, const penstock_compressor_traits& traits,
                                 const penstock_compressor_need* const* needs, uint64_t n);
MemoryFacts memory_facts(std::string name, const penstock_memory& table,
                         const penstock_memory_need& need);
CollectiveFacts collective_facts(std::string name, const penstock_collective_traits& traits);
SchedulerFacts scheduler_facts(std::string name, const penstock_scheduler_traits& traits);

}  // namespace penstock
