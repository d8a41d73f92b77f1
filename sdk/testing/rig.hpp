// Simulates ranks around one compressor and, if wanted, one memory. A step does the runtime's work
// in one thread, in plain loops, and checks every promise of the headers.
//
//   CompressorRig rig({.ranks = 3, .check_mass = true}, {{1000}, {64, 32}},
//                     load_plugin("build/compressor-topk.so"), {{"density", 0.1}});
//   Tensors mean = rig.step(draw_gradients(heavy_tailed, 3, {1000, 64 * 32}, 0));  // mean[item]
//
// The rig always checks counts against capacities, kinds against contents, guards around every
// buffer, that work is unchanged if nothing is kept, and that `out` and replicated states are equal
// to the bit on all ranks. It throws BrokenPromise for a broken promise, and must not be used after
// that.
#pragma once

#include <penstock/fold.h>

#include <functional>
#include <memory>
#include <optional>
#include <testing/data.hpp>
#include <testing/item.hpp>

namespace penstock::test {

using Tensors = std::vector<std::vector<float>>;  // [item][element]
using RankTensors = std::vector<Tensors>;         // [rank][item][element]

// A tolerance: the rounding errors of the section's element types, and of float32 sums.
inline constexpr double kAsTypesRound = -1;

struct RigSettings {
  uint32_t ranks = 2;
  uint64_t seed = 1;
  uint64_t ranks_per_slice = 0;  // payloads of so many ranks per decode call; 0: of all ranks
  bool check_mass = false;       // the values taken out of work must equal the decoded payload
  double mass_tolerance = 0;     // of check_mass, relative to the largest magnitude in work before
  bool check_sums = false;       // results are finite and, unless final, the sum of the sent values
  bool mean_by_decode = false;   // decode makes means of sums, as SCALES_RESULT promises
  bool keep = false;             // set ITEM_KEEP even without a memory that keeps anything
  bool fold = false;  // the compressor compensates in its encode (fold.h), except items whose
                      // memory publishes no form; it must offer the forms of the others
  bool fold_reads_before = false;  // and reads the old work and momentum from other places
  // Without a memory: the rig simulates a memory of this form (PENSTOCK_FORM_*), which keeps the
  // values that are not sent.
  uint32_t form = PENSTOCK_FORM_NONE;
};

struct StepSettings {
  double grad_scale = 1;
  double learning_rate = 0;
  bool forgotten = false;               // its results are discarded: states and index are restored
  std::optional<uint32_t> void_rank{};  // this rank's gradients are not finite: the bucket is void
  std::vector<uint32_t> joined{};  // ranks that have run out of data: absent, no memory touched
  // Whether the collective refuses an entry of a sparse payload, which returns to its rank.
  std::function<bool(uint32_t rank, uint64_t item, uint64_t entry)> refuse{};
};

class CompressorRig {
 public:
  // Plans every phase. Throws std::runtime_error with the plugin's message when a plan is refused.
  CompressorRig(const RigSettings& settings, const std::vector<Shape>& shapes,
                const LoadedPlugin& compressor, const OptionSettings& compressor_options = {},
                std::optional<LoadedPlugin> memory = {}, const OptionSettings& memory_options = {});

  // Makes one step. gradients[rank][item] and the result are in true units. Returns the result for
  // the optimizer: equal on all ranks, NaN for a void step.
  Tensors step(const RankTensors& gradients, const StepSettings& settings = {});
  // Makes a step in which rank 0 first receives payloads with one fault each, which no honest peer
  // sends, and then the good payloads. The plugin should return an error, may return none, and must
  // not write beside the buffers.
  void faulty_step(const RankTensors& gradients);
  // Calls the folded encode of rank 0 alone, which writes its states, and returns for each item
  // whether its payload is absent. With `fold` only.
  std::vector<bool> absent_after_encode(const RankTensors& gradients);

  uint32_t ranks() const { return settings_.ranks; }
  uint64_t n_items() const { return shapes_.size(); }
  uint64_t numel(uint64_t item) const { return ranks_[0].items[item].grad.size(); }
  uint64_t steps() const { return index_; }
  uint32_t period() const { return static_cast<uint32_t>(needs_.size()); }
  const PlannedNeed& need(uint64_t item, uint32_t phase = 0) const { return needs_[phase][item]; }
  const penstock_memory_need& memory_need(uint64_t item) const { return memory_needs_[item].c; }
  // The work of an item. Between steps, it holds the values that a memory keeps.
  std::vector<float> work(uint32_t rank, uint64_t item) const;
  std::vector<float> memory_state(uint32_t rank, uint64_t item, const std::string& name) const;
  std::vector<float> compressor_state(uint32_t rank, uint64_t item, const std::string& name) const;
  // The values that the rank sent in the last round of the last step, dense, and the number of
  // entries in section 0.
  const std::vector<float>& sent(uint32_t rank, uint64_t item) const;
  uint64_t sent_count(uint32_t rank, uint64_t item) const;
  // Drains the memory: returns the values that it keeps for the item; afterwards it keeps none.
  std::vector<float> drain(uint32_t rank, uint64_t item);
  // The items that the plugins see, for direct calls of a test.
  penstock_item* compressor_item(uint32_t rank, uint64_t item);
  penstock_item* memory_item(uint32_t rank, uint64_t item);
  const CompressorInstance& compressor(uint32_t rank) const { return *ranks_[rank].compressor; }
  // Step facts and scratch for direct calls of a test.
  penstock_step step_facts(uint32_t rank, const StepSettings& settings = {}) const;
  penstock_exec exec();

 private:
  struct Rank {
    std::unique_ptr<CompressorInstance> compressor;
    std::unique_ptr<MemoryInstance> memory;
    std::deque<SimulatedItem> items;
  };
  using ItemList = std::vector<uint64_t>;
  using States = std::vector<std::vector<std::vector<unsigned char>>>;
  using Payloads = std::vector<std::vector<PayloadPointer>>;  // [rank][position in items]
  using Received = std::vector<std::vector<OwnedPayload*>>;   // [position in items][payload]
  enum class Fault { absent, truncated, too_many, index_out_of_range, other_kind, noise };

  // rig_plan.cpp
  void plan_compressor(Rank& rank, bool first);
  void plan_memory(Rank& rank, bool first);
  bool tell_what_is_kept(Rank& rank) const;
  void lay_out(Rank& rank);
  // rig.cpp
  Tensors take_step(const RankTensors& gradients, const StepSettings& settings);
  States states() const;
  void put_back(const States& states);
  void load_gradients(const RankTensors& gradients, const StepSettings& settings);
  void compensate(const StepSettings& settings, const std::vector<bool>& sends);
  void finish(const StepSettings& settings, const std::vector<bool>& sends);
  void record(uint32_t rank, uint64_t item, const StepSettings& settings);
  void give_back(uint32_t rank, uint64_t item, OwnedPayload& payload, const StepSettings& settings);
  void give_back_all(uint32_t rank, const StepSettings& settings);
  Tensors results(const StepSettings& settings);
  void promise_intact(const char* call) const;
  void promise_replicated() const;
  void promise_sums(const std::vector<bool>& sends) const;
  bool keeps(uint64_t item) const;
  // The needs in the current step.
  const std::vector<PlannedNeed>& needs() const { return needs_[index_ % needs_.size()]; }
  bool is_last(uint64_t item, uint32_t round) const;
  std::string where(uint32_t rank, uint64_t item) const;
  void about_to_call(const char* call, uint32_t rank, const ItemList& items) const;
  // rig_exchange.cpp
  void round(uint32_t round, const ItemList& items, const StepSettings& settings,
             const std::vector<bool>& sends, bool is_void);
  std::vector<PayloadPointer> encode(uint32_t rank, uint32_t round, const ItemList& items,
                                     const StepSettings& settings, bool sends);
  void promise_payload(OwnedPayload& payload, uint32_t rank, uint64_t item, uint32_t round) const;
  std::vector<float> decode_own(uint32_t rank, uint32_t round, uint64_t item, OwnedPayload& payload,
                                const StepSettings& settings);
  void promise_mass(uint32_t rank, uint64_t item, const std::vector<float>& sent) const;
  double tolerance(uint64_t item, double magnitude) const;
  void deliver(uint32_t round, const ItemList& items, const Payloads& payloads,
               const StepSettings& settings);
  Outcome decode(uint32_t rank, uint32_t round, const ItemList& items, const Received& payloads,
                 const StepSettings& settings);
  void refuse_entries(uint32_t rank, const ItemList& items,
                      const std::vector<PayloadPointer>& payloads, const StepSettings& settings);
  ItemViews compressor_items(uint32_t rank, const ItemList& items);
  // rig_fold.cpp
  Outcome encode_folded(uint32_t rank, uint32_t round, const ItemList& items,
                        const StepSettings& settings,
                        const std::vector<penstock_payload*>& payloads);
  // The content of work after compensate; `momentum`, if not null, receives its new content.
  std::vector<float> compensated(uint32_t rank, uint64_t item, const StepSettings& settings,
                                 std::vector<float>* momentum = nullptr) const;
  void compensate_as_stand_in(const StepSettings& settings, const std::vector<bool>& sends);
  // rig_faults.cpp
  void try_faults(uint32_t round, const ItemList& items, const Payloads& payloads,
                  const StepSettings& settings);
  void try_fault(uint32_t round, uint64_t item, const std::vector<OwnedPayload*>& good, Fault fault,
                 const StepSettings& settings);

  RigSettings settings_;
  std::vector<Shape> shapes_;
  LoadedPlugin compressor_plugin_;
  std::optional<LoadedPlugin> memory_plugin_;
  std::deque<Rank> ranks_;
  std::vector<std::vector<PlannedNeed>> needs_;  // [phase][item]
  std::vector<PlannedMemory> memory_needs_;
  Guarded<unsigned char> scratch_;
  uint64_t index_ = 0;
  bool faulty_ = false;
};

// The compressor's fold encoder under this id of fold.h; null if it has none.
const penstock_fold_encoder* fold_encoder_of(const CompressorInstance& compressor,
                                             std::string_view id);

// gradients[rank][item] of the given element counts, drawn with one seed per rank, item and step.
RankTensors draw_gradients(std::vector<float> (*draw)(uint64_t, uint64_t), uint32_t ranks,
                           const std::vector<uint64_t>& numels, uint64_t step);

}  // namespace penstock::test
