// Planning one gradient or a range of it: an item without data, and what compressor and memory ask
// for it.
#pragma once

#include "core/control/activity.hpp"
#include "core/fit/gradient.hpp"
#include "core/fit/payload.hpp"
#include "core/fit/rules.hpp"
#include "core/fit/traffic.hpp"
#include "core/plan/plan.hpp"
#include "core/plugin/instances.hpp"

namespace penstock {

// The C view of a piece at plan time: shapes, dtypes and where the gradient lies are set, data
// pointers are null. Points into the gradient.
class TemplateItem {
 public:
  TemplateItem(const DeclaredGradient& gradient, const planning::Piece& piece);
  penstock_item* c() { return &c_; }
  // The dtype plugins will see: the gradient's own, or float32 where it is widened.
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
// gradient of 16 bits that it does not take. INVALID_ARGUMENT where it takes neither. Memories may
// still ask for float32.
Result<uint32_t> working_dtype(const DeclaredGradient& gradient,
                               const CompressorInstance& compressor);

// Copies of the rounds a need states.
std::vector<RoundNeed> copy_rounds(const penstock_compressor_need& need);

// All that examining one gradient tells.
struct ItemNeeds {
  uint32_t dtype = PENSTOCK_FLOAT32;
  CompressorFacts compressor_facts;
  MemoryFacts memory_facts;
  // Of payloads: as composites and devices send them, and with indices coded.
  std::vector<uint64_t> phase_bytes, coded_phase_bytes;
  uint64_t most_room = 0;  // of a phase: payloads, and coded indices as plugins see them
  PlannedBytes planned;
  uint64_t part_alignment = 0;
  uint32_t combine = 0;
};
// `calls`: where the calls of plugins are noted, so that a call that hangs can be named; `set`: for
// whom.
Result<ItemNeeds> plan_template(TemplateItem& item, CompressorInstance& compressor,
                                MemoryInstance& memory, uint32_t world, CallSlot* calls = nullptr,
                                std::string_view set = {});

// True when plugins see the gradient's own dtype although a memory keeps state: memories work in
// float32 only.
bool needs_widening(const penstock_memory_need& memory, uint32_t dtype);

}  // namespace penstock
