// A coding: one compression of a bucket, with its items, their memories, and the rounds of the
// compressor. Every route has one coding. Route `shard` has two: one for the gradients of each
// rank, and one for the sums at their owners.
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

// A gradient, or a range of a gradient, in a bucket: where its values come from and go back to.
struct PieceRun {
  Gradient* gradient = nullptr;
  planning::Piece piece;
  WorkPlace* place = nullptr;         // where it is compressed
  uint32_t dtype = PENSTOCK_FLOAT32;  // that plugins work in
  bool widened = false;               // the gradient has another dtype: plugins work on a copy
  bool carry_joins_result = false;    // Finish adds the carry: the memory has momentum or a shift
  // The piece is alone in its bucket and is summed unchanged. No flag is sent, and values that are
  // not finite arrive on every rank.
  bool is_never_void = false;
  bool inspected_by_encode = false;  // Load does not look for values that are not finite
  WorkMemory wide;                   // the copy, in float32
  void* values = nullptr;            // in this step

  void* storage() const;  // its address in the gradient's storage
};

// One item, as plugins see it: a piece, or the part of a piece that one owner has.
struct ItemRun {
  PieceRun* of = nullptr;
  Gradient* gradient = nullptr;
  ElementRange range;               // of the gradient
  const ItemRun* sum_of = nullptr;  // in the coding of sums: the item whose sum this is
  const ItemRun* sum = nullptr;     // in the first coding: the item of its sum
  ElementRange extent;  // all that this rank owns of the gradient; `range` is a part of it
  uint32_t owner = 0;
  bool encodes = true;  // on this rank
  bool decodes = true;
  bool sum_is_owned = false;  // its sum goes to the owner alone (owned_sums.hpp)
  CompressorInstance* compressor = nullptr;
  MemoryInstance* memory = nullptr;
  std::vector<RoundNeed> rounds;  // empty: the item is only compensated
  uint32_t work_is = 0;
  uint32_t n_scalars = 0;
  bool keeps = false;            // work is a state, into which encode's payload can be given back
  bool takes_any = false;        // see takes_any_payload (core/fit/item.hpp)
  bool records_decoded = false;  // record must be able to read what was sent
  bool passes_through = false;   // no plugin reads or writes its message
  uint32_t dtype = PENSTOCK_FLOAT32;
  penstock_item for_compressor{};
  penstock_item for_memory{};
  std::vector<const penstock_tensor*> compressor_states, memory_states;
  std::vector<StateView*> states;   // of compressor and memory
  StateView* work_state = nullptr;  // when work is a state
  StateView* folded_momentum = nullptr;
  std::string compressor_wants, memory_wants;  // their states, as text
  std::byte* share = nullptr;                  // this owner's part of the host's sum, or null
  WorkMemory work;                             // scratch work
  std::deque<PayloadStorage> own;              // per round
  std::vector<std::deque<PayloadStorage>>
      received;             // per round: one payload for all ranks together, one per rank, or one
                            // per rank of a slice (slices.hpp)
  PayloadStorage refused;   // entries a composite returned
  PayloadStorage taken;     // own less refused, for memory.record
  PayloadStorage returned;  // decoded own payload, for give_back and record
  Buffer refused_data, taken_data, result_data;
  WorkMemory returned_data;
  bool on_composite = false;
  bool arrives_as_mean = false;    // not as a sum; see means.hpp
  bool decoded_as_mean = false;    // by the compressor, which saves a sweep
  bool folded = false;             // encode also compensates, in one sweep
  bool folds_generations = false;  // that sweep reads one generation of states and writes the next
  penstock_fold fold{};

  // The place of its tensors and payloads. Payloads that travel also have room in a message.
  WorkPlace& place() const { return *of->place; }
  void* values() const;  // of its gradient in this step; its result goes there too
  bool is_folded_over(const StateView& state) const {
    return folds_generations && (&state == work_state || &state == folded_momentum);
  }
  bool has_result() const { return decodes || sum != nullptr; }  // on this rank
  bool wants_mean() const { return rounds.empty() || rounds.back().result == PENSTOCK_RESULT_MEAN; }
  // The payload that a round brings: from `rank`, or from all ranks together.
  PayloadStorage& arrival(uint32_t round, uint32_t rank) {
    return received[round][rank % received[round].size()];
  }
};

// Measures the time of the work that a call has queued.
class CallWatch {
 public:
  virtual ~CallWatch() = default;
  virtual Status begin() = 0;
  virtual Status end() = 0;
};

// One call to a compressor. Its items share the compressor instance, the round, the place of work,
// and the manner in which payloads arrive: joined or one per rank, and as sums or as means.
struct CompressorCall {
  CompressorInstance* compressor = nullptr;
  WorkPlace* place = nullptr;
  uint32_t round = 0;
  uint64_t n_ranks = 1;                                           // payloads per item at decode
  uint32_t flags = PENSTOCK_DECODE_FIRST | PENSTOCK_DECODE_LAST;  // of decode
  bool of_means = false;                                          // its payloads arrive as means
  bool scales_result = false;                                     // decode makes means of its sums
  std::vector<size_t> positions;
  std::vector<const penstock_item*> items;
  std::vector<penstock_payload*> own;                   // encode
  std::vector<const penstock_payload*> received;        // decode: [item * n_ranks + rank]
  const penstock_fold_encoder* fold_encoder = nullptr;  // if an item is folded
  std::vector<const penstock_fold*> folds;              // null for an item that is not folded
  uint64_t took_us = 0;                                 // in this step
  std::unique_ptr<CallWatch> watch;                     // null: not measured
};

// One call to a memory.
struct MemoryCall {
  MemoryInstance* memory = nullptr;
  WorkPlace* place = nullptr;
  uint32_t n_scalars = 0;
  uint64_t scalars_first = 0;  // in the prologue message
  std::vector<size_t> positions;
  std::vector<const penstock_item*> items;
  std::vector<const penstock_item*> unfolded;      // items that are not folded
  std::vector<const penstock_payload*> taken;      // for record
  std::vector<const penstock_payload*> give_back;  // scratch for give_back calls
};

struct Coding {
  LevelLinks* links = nullptr;  // of the group that exchanges it
  uint32_t leg = 0;             // of the route, where it begins
  bool to_owners = false;       // gathered payloads go only to owners
  bool of_sums = false;         // the coding of sums: an item has one payload, its owner's
  std::deque<ItemRun> items;    // all items, also of other owners
  std::vector<CompressorCall> encode_calls;  // by round
  std::vector<CompressorCall> decode_calls;
  std::vector<MemoryCall> memory_calls;
  uint32_t n_rounds = 0;
  std::unique_ptr<MessageRun> prologue;  // a FlagMessage
  // The parts of host sums that this rank owns, by dtype and by whether their messages are
  // announced.
  std::map<std::pair<uint32_t, bool>, WorkMemory> shares;

  // The step under way.
  penstock_step step{};    // as plugins see it: rank and world are the group's
  bool nonfinite = false;  // the values that this rank would encode are not finite
  bool has_begun = false;
  bool compensated = false;         // the memories have seen this rank's gradients
  bool decoded = false;             // decode has ended: all payloads have arrived
  uint32_t rounds_encoded = 0;      // after its last round, `work` of an item lacks its payload
  std::vector<bool> failed_owners;  // owners whose sums were not finite

  uint32_t n_ranks() const { return of_sums ? 1 : links->group.size(); }
  uint32_t rank() const { return of_sums ? 0 : links->group.rank(); }
};

}  // namespace penstock
