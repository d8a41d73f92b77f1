// The host's memory as a place of work. Every operation is done when its function returns.
#pragma once

#include "core/bucket/work_place.hpp"

namespace penstock {

class HostPlace final : public WorkPlace {
 public:
  HostPlace();

  std::string_view name() const override { return "on the CPU"; }
  bool works_at_once() const override { return true; }

  Result<WorkMemory> make(uint64_t bytes) const override { return WorkMemory(Buffer(bytes)); }
  Result<WorkMemory> make_scratch(uint64_t bytes) const override;
  Result<WorkMemory> make_for(const Link&, uint64_t bytes) const override { return make(bytes); }
  Result<StateView*> claim(StateStore& states, const StateKey& key, const ElementRange& extent,
                           const penstock_state_declaration& declaration) const override {
    return states.claim(key, extent, declaration);
  }
  void place(ItemRun&) const override {}
  Link& link_of(const Coding& coding, const ItemRun& item, uint32_t round) const override;
  Link& link_of_values(LevelLinks& links) const override;
  bool sends_from_here(const Link& link) const override;
  std::string_view way(const BucketRun&, const Coding&, const ItemRun&) const override {
    return {};
  }
  void point(penstock_section& section, const WorkMemory& memory, std::byte* here) const override;

  Status clear(void* values, uint64_t bytes) const override;
  Status scale(uint32_t dtype, void* values, uint64_t count, double factor) const override;
  Status divide(uint32_t dtype, void* values, uint64_t count, uint32_t by) const override;
  void copy(BucketRun& bucket, const void* source, void* target, uint64_t count,
            uint64_t element) const override;
  // Widens 16-bit values if compressor or memory works in float32, and adds the carry that a
  // replaced memory left.
  bool load(BucketRun& bucket, size_t piece) const override;
  Status store(BucketRun& bucket, PieceRun& piece) const override;
  bool take_sum(BucketRun& bucket, Coding& coding, size_t item) const override;
  float* place_of_scalars(BucketRun&, const MemoryCall&, float* scalars) const override {
    return scalars;
  }

  Status clear(const penstock_section& section, uint64_t bytes) const override;
  const void* sent(const MessageRun& message, const penstock_section& section) const override;
  void moved(penstock_section& section, std::byte* target) const override;
  Status arrived(BucketRun&, const MessageRun&, uint32_t, uint32_t, ItemRun&) const override {
    return {};
  }
};

}  // namespace penstock
