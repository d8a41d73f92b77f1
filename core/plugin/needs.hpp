// What plan asked for, as our own: the arrays a plugin publishes are its own, valid until its next
// plan call, and made of structs of its own age. Their copies stay and are of our age.
#pragma once

#include "core/plugin/c_struct.hpp"

#include <deque>
#include <string_view>
#include <vector>

namespace penstock {

class StateDeclarations {
 public:
  Status take(const penstock_state_declaration* const* theirs, uint64_t n);
  const penstock_state_declaration* const* data() const { return pointers_.data(); }

 private:
  std::vector<penstock_state_declaration> copies_;
  std::vector<const penstock_state_declaration*> pointers_;
};

// A need in three steps: made here, filled by plan through `c`, then adopted. Strings stay borrowed
// until the next plan call.
struct CompressorNeed {
  CompressorNeed() { c.struct_size = sizeof c; }
  CompressorNeed(const CompressorNeed&) = delete;
  CompressorNeed& operator=(const CompressorNeed&) = delete;

  // Lets the arrays of `c` be copies of ours. The error names the compressor.
  Status adopt(std::string_view compressor);

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

  Status adopt(std::string_view memory);

  penstock_memory_need c{};

 private:
  StateDeclarations states_;
};

struct CollectiveNeed {
  CollectiveNeed() { c.struct_size = sizeof c; }
  CollectiveNeed(const CollectiveNeed&) = delete;
  CollectiveNeed& operator=(const CollectiveNeed&) = delete;

  Status adopt(std::string_view collective);

  penstock_collective_need c{};

 private:
  StateDeclarations states_;
};

}  // namespace penstock
