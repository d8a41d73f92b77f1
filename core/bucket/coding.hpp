// A coded exchange: the items that meet in it, with their memories, and the compressor's rounds.
// Every route has one. Route `shard` has two: one for the gradients of each rank, and one for the
// sums at their owners.
#pragma once

#include "core/bucket/gradient.hpp"
#include "core/bucket/message.hpp"
#include "core/fit/payload.hpp"
#include "core/plan/ownership.hpp"
#include "core/plan/plan.hpp"
#include "core/plugin/instances.hpp"
#include "core/state/state_store.hpp"

#include <penstock/fold.h>

#include <deque>
#include <map>
#include <memory>
#include <vector>

namespace penstock {

// A gradient, or a range of one, in a bucket: where its values come from and go back to.
struct PieceRun {
  Gradient* gradient = nullptr;
  planning::Piece piece;
  WorkPlace* place = nullptr;         // where it is worked on
  uint32_t dtype = PENSTOCK_FLOAT32;  // that plugins work in
  bool widened = false;               // the gradient has another dtype: plugins work on a copy
  bool carry_joins_result = false;    // the memory has momentum or a shift
  // Alone in its bucket, and summed as it is: no flag is sent, and values that are not finite
  // arrive as they are.
  bool is_never_void = false;
  WorkMemory wide;         // the copy, in float32
  void* values = nullptr;  // in this step

  void* storage() const;  // within the gradient's own
};

// One item, as plugins see it: a piece, or the part of it that one owner has.
struct ItemRun {
  PieceRun* of = nullptr;
  Gradient* gradient = nullptr;
  ElementRange range;               // of the gradient
  const ItemRun* sum_of = nullptr;  // in the coding of sums: the item that this one is the sum of
  const ItemRun* sum = nullptr;     // in the coding before it: its sum
  ElementRange extent;  // all that this rank owns of the gradient; `range` is a part of it
  uint32_t owner = 0;
  bool encodes = true;  // on this rank
  bool decodes = true;
  CompressorInstance* compressor = nullptr;
  MemoryInstance* memory = nullptr;
  std::vector<RoundNeed> rounds;  // none: only compensated
  uint32_t work_is = 0;
  uint32_t n_scalars = 0;
  bool keeps = false;            // work is a state, into which encode's payload can be given back
  bool records_decoded = false;  // record must be able to read what was sent
  bool passes_through = false;   // no plugin has a part in its message
  uint32_t dtype = PENSTOCK_FLOAT32;
  penstock_item for_compressor{};
  penstock_item for_memory{};
  std::vector<const penstock_tensor*> compressor_states, memory_states;
  std::vector<StateView*> states;   // both
  StateView* work_state = nullptr;  // when work is a state
  StateView* folded_momentum = nullptr;
  std::string compressor_wants, memory_wants;  // their states, as needs_text tells them
  std::byte* share = nullptr;      // this owner's part of the host's sum; null: it has none
  WorkMemory work;                 // scratch work
  std::deque<PayloadStorage> own;  // per round
  std::vector<std::deque<PayloadStorage>>
      received;             // per round: one that joins all ranks, or one per rank
  PayloadStorage refused;   // entries a composite returned
  PayloadStorage taken;     // own less refused, for memory.record
  PayloadStorage returned;  // decoded own payload, for give_back and record
  Buffer refused_data, taken_data, result_data;
  WorkMemory returned_data;
  bool on_composite = false;
  bool arrives_as_mean = false;  // not as a sum; see means.hpp
  bool decoded_as_mean = false;  // by the compressor, which saves a sweep
  bool folded = false;           // encode compensates too, in the same sweep
  bool folds_generations =
      false;  // that sweep reads the states before it, and writes the next ones
  penstock_fold fold{};

  // Its tensors and payloads lie there; what travels of them has a place in the message.
  WorkPlace& place() const { return *of->place; }
  void* values() const;  // where its gradient is in this step, and where its result goes
  bool is_folded_over(const StateView& state) const {
    return folds_generations && (&state == work_state || &state == folded_momentum);
  }
  bool has_result() const { return decodes || sum != nullptr; }  // on this rank
  bool wants_mean() const { return rounds.empty() || rounds.back().result == PENSTOCK_RESULT_MEAN; }
  // What a round brings: from rank r, or from all together.
  PayloadStorage& arrival(uint32_t round, uint32_t rank) {
    return received[round][received[round].size() == 1 ? 0 : rank];
  }
};

// Measures how long the work that a call has queued takes.
class CallWatch {
 public:
  virtual ~CallWatch() = default;
  virtual Status begin() = 0;
  virtual Status end() = 0;
};

// One call to a compressor: items of one instance that are in the same round, meet in the same way
// and are worked on in the same place.
struct CompressorCall {
  CompressorInstance* compressor = nullptr;
  WorkPlace* place = nullptr;
  uint32_t round = 0;
  uint64_t n_ranks = 1;        // payloads per item at decode
  bool of_means = false;       // its payloads arrive as means
  bool scales_result = false;  // decode makes means of its sums
  std::vector<size_t> positions;
  std::vector<const penstock_item*> items;
  std::vector<penstock_payload*> own;                   // encode
  std::vector<const penstock_payload*> received;        // decode: [item * n_ranks + rank]
  const penstock_fold_encoder* fold_encoder = nullptr;  // where an item is folded
  std::vector<const penstock_fold*> folds;              // null for items that are not
  uint64_t took_us = 0;                                 // in this step
  std::unique_ptr<CallWatch> watch;                     // null: nobody asks
};

// One call to a memory.
struct MemoryCall {
  MemoryInstance* memory = nullptr;
  WorkPlace* place = nullptr;
  uint32_t n_scalars = 0;
  uint64_t scalars_first = 0;  // in the prologue message
  std::vector<size_t> positions;
  std::vector<const penstock_item*> items;
  std::vector<const penstock_item*> unfolded;      // those that are not folded
  std::vector<const penstock_payload*> taken;      // for record
  std::vector<const penstock_payload*> give_back;  // scratch for give_back calls
};

struct Coding {
  LevelLinks* links = nullptr;  // of the group that exchanges it
  uint32_t leg = 0;             // of the route, where it begins
  bool to_owners = false;       // what is gathered goes only to owners
  bool alone = false;           // the coding of sums: an item has one payload, its owner's
  std::deque<ItemRun> items;    // all, also those of other owners
  std::vector<CompressorCall> encode_calls;  // by round
  std::vector<CompressorCall> decode_calls;
  std::vector<MemoryCall> memory_calls;
  uint32_t n_rounds = 0;
  std::unique_ptr<MessageRun> prologue;  // a FlagMessage
  // What this rank owns of sums over its host, by dtype and whether they are announced.
  std::map<std::pair<uint32_t, bool>, WorkMemory> shares;

  // The step under way.
  penstock_step step{};    // as plugins see it: rank and world are the group's
  bool nonfinite = false;  // what this rank would encode is not finite
  bool has_begun = false;
  bool compensated = false;         // the memories have seen this rank's gradients
  bool decoded = false;             // to the end: what was sent has arrived
  uint32_t rounds_encoded = 0;      // an item whose last round is among them was taken out of work
  std::vector<bool> failed_owners;  // alone: whose sums were not finite

  uint32_t n_ranks() const { return alone ? 1 : links->group.size(); }
  uint32_t rank() const { return alone ? 0 : links->group.rank(); }
};

}  // namespace penstock
