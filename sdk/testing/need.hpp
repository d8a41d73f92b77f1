// Asking plugins what items need, and keeping the answer: it is looked at first, by the rules of
// penstock/validate.hpp, and then copied, for the plugin's own arrays live until its next plan
// call.
#pragma once

#include <deque>
#include <testing/instances.hpp>
#include <testing/payload.hpp>

namespace penstock::test {

// States as one plugin declared them for one item.
struct PlannedStates {
  std::vector<penstock_state_declaration> states;
  std::deque<std::string> names;  // what states[i].name points to
};

// What one item needs of a compressor in one phase.
struct PlannedNeed : PlannedStates {
  std::vector<PlannedRound> rounds;
  uint64_t scratch_bytes = 0;
  uint64_t part_alignment = 0;
  uint32_t period = 1;
  uint32_t scope = 0;
  uint32_t flags = 0;
};

// What one item needs of a memory; `states` of `c` is null.
struct PlannedMemory : PlannedStates {
  penstock_memory_need c{};
};

// [control] Call plan. `plugin`: for messages. Throw std::runtime_error with the plugin's message
// where it refuses, BrokenPromise where what it published cannot be used.
std::vector<PlannedNeed> ask_needs(const CompressorInstance& compressor, const LoadedPlugin& plugin,
                                   uint32_t phase, uint32_t world, const ItemViews& items);
std::vector<PlannedMemory> ask_needs(const MemoryInstance& memory, const LoadedPlugin& plugin,
                                     const ItemViews& items,
                                     const std::vector<PlannedNeed>& compressor_needs);

}  // namespace penstock::test
