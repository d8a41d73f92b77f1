// Simulated ranks around one compressor and, if wanted, one memory: a step as the runtime does it,
// in one thread, in plain loops, with every promise of the headers looked at on the way.
//
//   CompressorRig rig({.ranks = 3, .check_mass = true}, {{1000}, {64, 32}}, load_plugin(...),
//   {{"density", 0.1}},
//                     load_plugin("memory", "residual"));
//   Tensors mean = rig.step(gradients);            // gradients[rank][item], mean[item]
//
// Always checked: counts against capacities, guards around every buffer, work left alone where
// nothing is kept, `out` and replicated states equal to the bit on all ranks.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <support/buffer.hpp>
#include <support/plugin.hpp>

namespace penstock::test {

using Tensors = std::vector<std::vector<float>>;  // [item][element]
using RankTensors = std::vector<Tensors>;         // [rank][item][element]
using Shape = std::vector<int64_t>;

struct RigSettings {
  uint32_t ranks = 2;
  uint64_t seed = 1;
  uint64_t ranks_per_slice = 0;  // payloads of so many ranks per decode call; 0: all in one
  bool check_mass = false;       // what encode took out of work must be what its payload decodes to
  double mass_tolerance = 0;     // of that, relative to the largest magnitude in work before
  bool keep = false;             // set ITEM_KEEP even without a memory that keeps anything
  bool fold = false;  // the compressor compensates in its encode (fold.h); forms all items'
                      // memories must publish and it must offer
};

struct StepSettings {
  double grad_scale = 1;
  double learning_rate = 0;
  bool applied = true;                  // false: the optimizer skips the step; all is given back
  std::optional<uint32_t> void_rank{};  // this rank's gradients are not finite: the bucket is void
  std::vector<uint32_t> joined{};  // ranks that have run out of data: absent, no memory touched
  // Entries of sparse payloads that the collective hands back to their owner.
  std::function<bool(uint32_t rank, uint64_t item, uint64_t entry)> refuse{};
};

// Rounds and states of one item in one phase, copied from what plan published.
struct PlannedRound {
  penstock_round c{};
  std::vector<penstock_section_bound> sections;
};
struct PlannedNeed {
  std::vector<PlannedRound> rounds;
  std::vector<penstock_state_declaration> states;
  std::deque<std::string> names;
  uint64_t scratch_bytes = 0;
  uint64_t part_alignment = 0;
  uint32_t period = 1;
  uint32_t scope = 0;
  uint32_t flags = 0;
};

// One payload with guarded sections.
class OwnedPayload {
 public:
  OwnedPayload() = default;
  OwnedPayload(const std::vector<penstock_section_bound>& bounds, int32_t rank);
  penstock_payload* c() { return &payload_; }
  uint64_t n_sections() const { return sections_.size(); }
  penstock_section& section(uint64_t i) { return sections_[i]; }
  bool intact() const;

 private:
  penstock_payload payload_{};
  std::deque<penstock_section> sections_;
  std::vector<penstock_section*> pointers_;
  std::vector<Guarded<unsigned char>> bytes_;
};
using PayloadPointer = std::unique_ptr<OwnedPayload>;

class CompressorRig {
 public:
  // Plans every phase. Throws std::runtime_error with the plugin's message when a plan is refused.
  CompressorRig(const RigSettings& settings, const std::vector<Shape>& shapes,
                const LoadedPlugin& compressor, const OptionSettings& compressor_options = {},
                std::optional<LoadedPlugin> memory = {}, const OptionSettings& memory_options = {});

  // One step. gradients[rank][item] in true units; the result too, as the optimizer would see it:
  // equal on all ranks, NaN for a void step.
  Tensors step(const RankTensors& gradients, const StepSettings& settings = {});

  uint32_t ranks() const { return settings_.ranks; }
  uint64_t n_items() const { return shapes_.size(); }
  uint64_t numel(uint64_t item) const { return ranks_[0].items[item]->grad.size(); }
  uint64_t steps() const { return index_; }
  const PlannedNeed& need(uint64_t item, uint32_t phase = 0) const { return needs_[phase][item]; }
  const penstock_memory_need& memory_need(uint64_t item) const { return memory_needs_[item]; }
  // What is compressed; for memories that keep, what they keep between steps.
  std::vector<float> work(uint32_t rank, uint64_t item) const;
  std::vector<float> memory_state(uint32_t rank, uint64_t item, const std::string& name) const;
  std::vector<float> compressor_state(uint32_t rank, uint64_t item, const std::string& name) const;
  // What the rank sent in the last round of the last step, dense, and its number of entries in
  // section 0.
  const std::vector<float>& sent(uint32_t rank, uint64_t item) const;
  uint64_t sent_count(uint32_t rank, uint64_t item) const;
  // What the memory keeps for the item; it keeps nothing afterwards.
  std::vector<float> drain(uint32_t rank, uint64_t item);
  // What the plugins see, for calls that a test makes on its own.
  penstock_item* compressor_item(uint32_t rank, uint64_t item);
  penstock_item* memory_item(uint32_t rank, uint64_t item);
  const CompressorInstance& compressor(uint32_t rank) const { return *ranks_[rank].compressor; }
  // Facts and scratch for calls that a test makes on its own.
  penstock_step step_facts(uint32_t rank, const StepSettings& settings = {}) const;
  penstock_exec exec();

 private:
  struct State {
    std::string name;
    uint32_t state_class;
    Guarded<unsigned char> bytes;
    penstock_tensor tensor{};
    int64_t shape[2];
  };
  struct RigItem {
    std::string name;
    Shape shape;
    Guarded<float> grad;
    Guarded<float> scratch_work;
    std::deque<State> compressor_states, memory_states;
    std::vector<const penstock_tensor*> compressor_pointers, memory_pointers;
    penstock_item c{};  // what both views share; `states` differ
    penstock_item for_compressor{}, for_memory{};
    PayloadPointer own;         // the last round's
    std::vector<float> sent;    // own, decoded
    std::vector<float> before;  // work before encode
  };
  struct Rank {
    std::unique_ptr<CompressorInstance> compressor;
    std::unique_ptr<MemoryInstance> memory;
    std::deque<std::unique_ptr<RigItem>> items;
  };
  using ItemList = std::vector<uint64_t>;

  // rig_plan.cpp
  void make_items(Rank& rank) const;
  void plan_compressor(Rank& rank, bool first);
  void plan_memory(Rank& rank, bool first);
  void make_states(Rank& rank);
  static void add_states(const std::vector<const penstock_state_declaration*>& declarations,
                         std::deque<State>& states, std::vector<const penstock_tensor*>& pointers);
  // rig.cpp
  void load_gradients(const RankTensors& gradients, const StepSettings& settings);
  void compensate(const StepSettings& settings, const std::vector<bool>& sends);
  void finish(const StepSettings& settings, const std::vector<bool>& sends);
  void give_back(uint32_t rank, uint64_t item, OwnedPayload& payload, const StepSettings& settings);
  void give_back_all(uint32_t rank, const StepSettings& settings);
  Tensors results(const StepSettings& settings);
  void check_guards();
  void check_replicated();
  bool keeps(uint64_t item) const;
  // rig_exchange.cpp
  void round(uint32_t round, const ItemList& items, const StepSettings& settings,
             const std::vector<bool>& sends, bool is_void);
  std::vector<PayloadPointer> encode(uint32_t rank, uint32_t round, const ItemList& items,
                                     const StepSettings& settings, bool sends);
  // rig_fold.cpp
  void encode_folded(uint32_t rank, uint32_t round, const ItemList& items,
                     const StepSettings& settings, penstock_payload* const* payloads);
  std::vector<float> compensated(uint32_t rank, uint64_t item, const StepSettings& settings) const;
  void check_payload(OwnedPayload& payload, const PlannedRound& round, const std::string& whose);
  void decode_own(uint32_t rank, uint32_t round, const ItemList& items,
                  const StepSettings& settings);
  void decode(uint32_t rank, uint32_t round, const ItemList& items,
              const std::vector<std::vector<OwnedPayload*>>& payloads,
              const StepSettings& settings);
  void refuse_entries(uint32_t rank, const ItemList& items,
                      const std::vector<PayloadPointer>& payloads, const StepSettings& settings);
  PayloadPointer sum(const PlannedRound& round,
                     const std::vector<std::vector<PayloadPointer>>& payloads, uint64_t position);
  std::vector<penstock_item*> compressor_items(uint32_t rank, const ItemList& items);

  RigSettings settings_;
  std::vector<Shape> shapes_;
  std::vector<Rank> ranks_;
  std::vector<std::vector<PlannedNeed>> needs_;  // [phase][item]
  std::vector<penstock_memory_need> memory_needs_;
  std::vector<std::vector<penstock_state_declaration>> memory_states_;
  std::deque<std::string> memory_state_names_;
  Guarded<unsigned char> scratch_;
  uint64_t index_ = 0;
};

// A dense float32 payload around `values`.
PayloadPointer dense_payload(const std::vector<float>& values, int32_t rank);
// A sparse one; indices uint32, values float32.
PayloadPointer sparse_payload(const std::vector<uint32_t>& indices,
                              const std::vector<float>& values, int32_t rank);

// gradients[rank][item] of the given element counts, drawn with one seed per rank, item and step.
RankTensors draw_gradients(std::vector<float> (*draw)(uint64_t, uint64_t), uint32_t ranks,
                           const std::vector<uint64_t>& numels, uint64_t step);

}  // namespace penstock::test
