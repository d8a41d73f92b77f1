// Asks plugins for the needs of items. An answer is checked by the rules of penstock/validate.hpp
// and then copied, because the plugin's own arrays live only until its next plan call.
#pragma once

#include <deque>
#include <testing/instances.hpp>
#include <testing/payload.hpp>

namespace penstock::test {

// States as one plugin declared them for one item.
struct PlannedStates {
  std::vector<penstock_state_declaration> states;
  std::deque<std::string> names;  // the texts to which states[i].name points
};

// The need of one item for a compressor in one phase.
struct PlannedNeed : PlannedStates {
  std::vector<PlannedRound> rounds;
  uint64_t scratch_bytes = 0;
  uint64_t part_alignment = 0;
  uint32_t period = 1;
  uint32_t scope = 0;
  uint32_t flags = 0;
};

// The need of one item for a memory; `states` of `c` is null.
struct PlannedMemory : PlannedStates {
  penstock_memory_need c{};
};

// [control] Call plan. `plugin`: for messages. Throw std::runtime_error with the plugin's message
// if it refuses, and BrokenPromise if the published need cannot be used.
std::vector<PlannedNeed> ask_needs(const CompressorInstance& compressor, const LoadedPlugin& plugin,
                                   uint32_t phase, uint32_t world, const ItemViews& items);
std::vector<PlannedMemory> ask_needs(const MemoryInstance& memory, const LoadedPlugin& plugin,
                                     const ItemViews& items,
                                     const std::vector<PlannedNeed>& compressor_needs);

}  // namespace penstock::test
