// The facts about plugins that the rules of core/fit use, read from the plugins' descriptions.
#pragma once

#include <penstock/collective.h>
#include <penstock/compressor.h>
#include <penstock/memory.h>
#include <penstock/scheduler.h>

#include <cstdint>
#include <string>

namespace penstock {

// Facts about a compressor from its traits and from its need for an item, joined over phases and
// rounds.
struct CompressorFacts {
  std::string name;  // instance, for messages
  uint64_t device_types = 0;
  uint32_t traits = 0;          // PENSTOCK_COMPRESSOR_*
  uint32_t need_flags = 0;      // PENSTOCK_NEED_*, the flags that hold in every phase
  uint32_t n_rounds = 0;        // the most of any phase
  bool sums = false;            // some round sums
  bool gathers = false;         // some round gathers
  bool gathers_sparse = false;  // the last round gathers an INDICES and a VALUES section of float32
  bool gathers_pairs = false;   // some round gathers such sections, with values of any type
  bool same_bits = false;       // some round feeds replicated state
  bool final_result = false;    // RESULT_FINAL
  bool replicates = false;      // keeps state that is equal on all ranks
  // Whether a sum can be decoded by one rank alone: it is the only round, and no state of the other
  // ranks depends on it.
  bool sums_for_one() const {
    return sums && !gathers && n_rounds == 1 && !replicates && !same_bits;
  }
  bool operator==(const CompressorFacts&) const = default;
};

struct MemoryFacts {
  std::string name;
  bool owns_momentum = false;
  bool keeps = false;  // has MASS state
  bool has_give_back = false;
  bool finishes = false;          // has `finish`, which gets the result on every rank
  bool adds_rest = false;         // adds unsent values later, although it keeps no state
  bool shifts = false;            // sends the difference to a reference
  bool same_bits = false;         // has replicated state, which sums change
  bool records = false;           // has `record`, which inspects the sent payload
  bool works_in_scratch = false;  // work is neither the gradient nor a state
  bool operator==(const MemoryFacts&) const = default;
};

struct CollectiveFacts {
  std::string name;
  uint32_t flags = 0;  // PENSTOCK_COLLECTIVE_*
  uint64_t patterns = 0;
  uint64_t device_types = 0;
  uint64_t device_patterns = 0;  // the patterns that work on memory of devices
  uint64_t dtypes = 0;           // the dtypes that it adds up
  // Whether it adds up data on devices.
  bool sums_on_devices() const {
    return (device_patterns & PENSTOCK_PATTERN_BIT(PENSTOCK_ALL_REDUCE)) != 0;
  }
  // Whether it can add up data on devices for the owners on a host, and distribute their results.
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

// Adds the facts of a further phase of one item. Phases are merged one by one, because the need of
// a phase is valid only until the next plan call.
void merge_phase(CompressorFacts& facts, const CompressorFacts& next);
// Facts from the results of describe and plan. `needs`: `n` needs of one item, one for each phase.
CompressorFacts compressor_facts(std::string name, const penstock_compressor_traits& traits,
                                 const penstock_compressor_need* const* needs, uint64_t n);
MemoryFacts memory_facts(std::string name, const penstock_memory& table,
                         const penstock_memory_need& need);
CollectiveFacts collective_facts(std::string name, const penstock_collective_traits& traits);
SchedulerFacts scheduler_facts(std::string name, const penstock_scheduler_traits& traits);

}  // namespace penstock
