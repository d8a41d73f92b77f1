// Plans one gradient or a range of it: makes an item without data, and asks compressor and memory
// for their needs.
#pragma once

#include "core/control/activity.hpp"
#include "core/fit/gradient.hpp"
#include "core/fit/payload.hpp"
#include "core/fit/rules.hpp"
#include "core/fit/traffic.hpp"
#include "core/plan/plan.hpp"
#include "core/plugin/instances.hpp"

namespace penstock {

// The C view of a piece at plan time: shapes, dtypes and the device of the gradient are set, data
// pointers are null. It points into the gradient, which must outlive it.
class TemplateItem {
 public:
  TemplateItem(const DeclaredGradient& gradient, const planning::Piece& piece);
  penstock_item* c() { return &c_; }
  // The dtype that plugins will see: the gradient's own, or float32 if it is widened.
  void set_dtype(uint32_t dtype);
  const DeclaredGradient& gradient() const { return gradient_; }

 private:
  const DeclaredGradient& gradient_;
  penstock_item c_{};
};

// Fills the fields of `item` that follow from gradient and piece.
void describe_item(penstock_item& item, const DeclaredGradient& gradient,
                   const planning::Piece& piece, uint32_t dtype);

// The dtype in which the compressor takes the gradient: the gradient's own, or float32 for a
// gradient of 16 bits that it does not take. INVALID_ARGUMENT if it takes neither. Memories may
// still ask for float32.
Result<uint32_t> working_dtype(const DeclaredGradient& gradient,
                               const CompressorInstance& compressor);

// Copies of the rounds in a need.
std::vector<RoundNeed> copy_rounds(const penstock_compressor_need& need);

// The result of planning one gradient with a compressor and a memory.
struct ItemNeeds {
  uint32_t dtype = PENSTOCK_FLOAT32;
  CompressorFacts compressor_facts;
  MemoryFacts memory_facts;
  // Bytes of the payloads in each phase: uncoded, as composites and devices send them, and with
  // coded indices.
  std::vector<uint64_t> phase_bytes, coded_phase_bytes;
  uint64_t most_room = 0;  // most bytes in a phase: payloads, and uncoded copies of coded indices
  PlannedBytes planned;
  uint64_t part_alignment = 0;
  uint32_t combine = 0;
  bool decodes_slices = true;  // its gathered payloads need not be decoded in one call
  bool takes_any = false;
};
// `takes_any`: see takes_any_payload. `calls`: where the calls of plugins are noted, so that a
// hanging call can be named. `set`: the set that they are for.
Result<ItemNeeds> plan_template(TemplateItem& item, CompressorInstance& compressor,
                                MemoryInstance& memory, uint32_t world, bool takes_any,
                                CallSlot* calls = nullptr, std::string_view set = {});

// Whether gathered payloads of a scheme may have any sections and types: no composite adds them up,
// and no device sends them to another device, past the host that checks them. Other routes than
// `flat` gather through host memory. `connects_devices`: the run connects the devices of the set's
// ranks; the scheme of a set does not say it.
bool takes_any_payload(const Scheme& scheme, bool connects_devices);

// Whether the compressor is told in plan that the memory keeps rounding errors (ITEM_KEEP).
inline bool keeps_rounding(const penstock_memory_need& memory, bool takes_any) {
  return takes_any && memory.work_is == PENSTOCK_WORK_IS_STATE;
}

// True when plugins see the gradient's own dtype although a memory keeps state: memories work in
// float32 only.
bool needs_widening(const penstock_memory_need& memory, uint32_t dtype);

}  // namespace penstock
