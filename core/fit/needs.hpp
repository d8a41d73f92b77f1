// Asks plugins for the needs of items, and keeps copies of the answers.
//
// The arrays that a plugin publishes belong to it, are valid until its next plan call, and consist
// of structs of the abi that it was built with. The copies here are checked
// (penstock/validate.hpp) and have the abi of this core.
#pragma once

#include "core/plugin/c_struct.hpp"
#include "core/plugin/instances.hpp"

#include <deque>
#include <string>
#include <string_view>
#include <vector>

namespace penstock {

class StateDeclarations {
 public:
  Status take(const penstock_state_declaration* const* theirs, uint64_t n);
  const penstock_state_declaration* const* data() const { return pointers_.data(); }

 private:
  std::deque<std::string> names_;
  std::vector<penstock_state_declaration> copies_;
  std::vector<const penstock_state_declaration*> pointers_;
};

// A need in three steps: made here, filled by plan through `c`, then adopted. After that the arrays
// of `c` are the core's copies. The error of adopt names the field; the caller adds the plugin.
struct CompressorNeed {
  CompressorNeed() { c.struct_size = sizeof c; }
  CompressorNeed(const CompressorNeed&) = delete;
  CompressorNeed& operator=(const CompressorNeed&) = delete;

  Status adopt();

  penstock_compressor_need c{};

 private:
  Status take_round(const penstock_round* theirs);

  StateDeclarations states_;
  std::deque<penstock_round> rounds_;
  std::deque<penstock_section_bound> sections_;
  std::deque<std::vector<const penstock_section_bound*>> section_pointers_;
  std::vector<const penstock_round*> round_pointers_;
};

struct MemoryNeed {
  MemoryNeed() { c.struct_size = sizeof c; }
  MemoryNeed(const MemoryNeed&) = delete;
  MemoryNeed& operator=(const MemoryNeed&) = delete;

  Status adopt(const penstock_memory& table, const penstock_item& item);

  penstock_memory_need c{};

 private:
  StateDeclarations states_;
};

struct CollectiveNeed {
  CollectiveNeed() { c.struct_size = sizeof c; }
  CollectiveNeed(const CollectiveNeed&) = delete;
  CollectiveNeed& operator=(const CollectiveNeed&) = delete;

  // The error names the collective.
  Status adopt(std::string_view collective);

  penstock_collective_need c{};

 private:
  StateDeclarations states_;
};

using Items = std::vector<const penstock_item*>;
using CompressorNeeds = std::deque<CompressorNeed>;
using MemoryNeeds = std::deque<MemoryNeed>;

// [control] Calls plan for `items`; `needs` then holds one need for each item. Errors of plan
// itself name the instance. INTERNAL if an answer cannot be used: the message names instance,
// plugin, gradient, field, value and the expected value.
Status ask_needs(const CompressorInstance& compressor, uint32_t phase, uint32_t world,
                 const Items& items, CompressorNeeds& needs);
Status ask_needs(const MemoryInstance& memory, const Items& items,
                 const CompressorNeeds& compressor_needs, MemoryNeeds& needs);

// INTERNAL if the need of a later phase differs from the need of phase 0 in a field that must be
// equal.
Status check_phases(const CompressorInstance& compressor, const penstock_item& item,
                    const CompressorNeed& first, uint32_t phase, const CompressorNeed& later);

}  // namespace penstock
