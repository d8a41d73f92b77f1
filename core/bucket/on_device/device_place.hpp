// The memory of a device as a place of work (decision 0021). Every operation is queued on the
// stream of the set's residents, and no function here waits for it.
#pragma once

#include "core/bucket/work_place.hpp"
#include "core/device/resident.hpp"

#include <span>

namespace penstock {

struct Gradient;
struct SetContext;

class DevicePlace final : public WorkPlace {
 public:
  // The residents must outlive the place.
  explicit DevicePlace(Residents& residents);

  std::string_view name() const override { return "on a device"; }
  bool works_at_once() const override { return false; }

  Result<WorkMemory> make(uint64_t bytes) const override;
  Result<WorkMemory> make_scratch(uint64_t bytes) const override { return make(bytes); }
  // Returns pinned memory with a twin on the device; for an announced link, memory of the device
  // alone.
  Result<WorkMemory> make_for(const Link& link, uint64_t bytes) const override;
  Result<StateView*> claim(StateStore& states, const StateKey& key, const ElementRange& extent,
                           const penstock_state_declaration& declaration) const override {
    return states.claim(key, extent, declaration, &stream());
  }
  void place(ItemRun& item) const override;
  // The direct link if its transport can carry the round, else the link through host memory.
  Link& link_of(const Coding& coding, const ItemRun& item, uint32_t round) const override;
  Link& link_of_values(LevelLinks& links) const override;
  bool sends_from_here(const Link& link) const override;
  std::string_view way(const BucketRun& bucket, const Coding& coding,
                       const ItemRun& item) const override;
  void point(penstock_section& section, const WorkMemory& memory, std::byte* here) const override;

  Status clear(void* values, uint64_t bytes) const override;
  Status scale(uint32_t dtype, void* values, uint64_t count, double factor) const override;
  Status divide(uint32_t dtype, void* values, uint64_t count, uint32_t by) const override {
    return scale(dtype, values, count, 1.0 / by);
  }
  void begin_copies(BucketRun& bucket) const override;
  void copy(BucketRun& bucket, const void* source, void* target, uint64_t count,
            uint64_t element) const override;
  Status end_copies(BucketRun& bucket) const override;
  // Reads the findings of Inspect, which has inspected and widened the values.
  bool load(BucketRun& bucket, size_t piece) const override;
  Status store(BucketRun& bucket, PieceRun& piece) const override;
  bool take_sum(BucketRun& bucket, Coding& coding, size_t item) const override;
  float* place_of_scalars(BucketRun& bucket, const MemoryCall& call, float* scalars) const override;

  Status clear(const penstock_section& section, uint64_t bytes) const override;
  const void* sent(const MessageRun& message, const penstock_section& section) const override;
  void moved(penstock_section& section, std::byte* target) const override;
  // Checks indices, because a device uses them without a check.
  Status arrived(BucketRun& bucket, const MessageRun& message, uint32_t round, uint32_t rank,
                 ItemRun& item) const override;

 private:
  const Stream& stream() const { return residents_.stream(); }
  const Device& device() const { return residents_.device(); }

  Residents& residents_;
};

// From now on these gradients of the set are compressed on the residents' device: gradient i
// becomes resident i. [control]
void work_on(SetContext& set, Residents& residents, std::span<Gradient* const> gradients);

}  // namespace penstock
