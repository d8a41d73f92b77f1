// A bucket as it runs: items, payloads, messages and buffers, all made at plan time. On the step
// path nothing here allocates.
#pragma once

#include "core/bucket/gradient.hpp"
#include "core/bucket/job.hpp"
#include "core/comm/communication.hpp"
#include "core/fit/payload.hpp"
#include "core/plan/plan.hpp"
#include "core/plan/route.hpp"
#include "core/plugin/instances.hpp"
#include "core/trace/timeline.hpp"

#include <penstock/fold.h>

#include <atomic>
#include <deque>
#include <memory>
#include <vector>

namespace penstock {

class BucketRun;
class Engine;

// [engine] Hears at the end of a bucket's job, and before when what is left of it waits for the
// next forward.
struct BucketListener {
  virtual void bucket_ended(BucketRun& bucket, const Status& status) = 0;
  virtual void backward_part_ended(BucketRun& bucket) = 0;

 protected:
  ~BucketListener() = default;
};

// What all buckets of a set share.
struct SetContext {
  BucketListener* listener = nullptr;
  Communication* communication = nullptr;
  Engine* engine = nullptr;
  Timeline* timeline = nullptr;
  Channel* channel = nullptr;          // of the transport
  Channel* composite = nullptr;        // of the composite collective, or null
  uint64_t limit_us = 0;               // of each message
  CallSlot* calls = nullptr;           // where the engine's plugin calls are noted
  CallSlot* planning_calls = nullptr;  // and those outside a step
  uint32_t rank = 0;
  uint32_t world = 1;
  bool result_is_sum = false;        // the frontend wants sums, not means
  bool nonfinite_is_strict = false;  // a void bucket is known before anything is added to a memory
  std::string name;                  // of the set
  std::string composite_id;          // plugin id of the composite collective
  std::string composite_name, transport_name;  // as the scheme calls them, for messages
  uint64_t tags_per_step = 1;                  // messages of the phase that has most
  uint64_t sequence_base = 0;                  // ORDERED channels: of this step's first message
  penstock_exec exec{};                        // of plugin calls on the engine thread
  penstock_step step{};                        // of the current step; written between steps only
  std::atomic<uint64_t> void_buckets{0};
  // Of the step under way: the first gradient of this rank that was seen not to be finite.
  static constexpr uint64_t kNoGradient = UINT64_MAX;
  std::atomic<uint64_t> nonfinite_gradient{kNoGradient};
};

// One message of a bucket.
struct MessageRun final : Transfer {
  // `passed_on`: sends what an earlier leg has received.
  enum class Kind { prologue, sum, gather, sparse, flag, passed_on };
  Kind kind = Kind::sum;
  BucketRun* bucket = nullptr;
  Channel* channel = nullptr;
  std::vector<size_t> items;  // positions in the bucket
  Buffer send;
  Buffer receive;           // empty: in place, or in the gradient's own storage
  uint64_t flag_index = 0;  // element that counts ranks with non-finite gradients; sums only
  bool has_flag = false;
  uint64_t order = 0;  // in the phase's sequence of messages
  bool sent = false;   // in this step
  std::vector<uint64_t> receive_counts, receive_offsets;
  std::vector<const penstock_item*> item_pointers;  // sparse
  std::vector<const penstock_payload*> payload_pointers;
  std::vector<penstock_payload*> result_pointers;
  std::vector<penstock_payload*> refused_pointers;
  std::vector<const penstock_tensor*> states;
  Buffer scratch;  // a composite's own
  penstock_exec exec{};

  Status collect(Channel& channel, penstock_ticket* ticket) override;
  void finished(Status status) override;
};

// A gradient, or a range of one, in a bucket.
struct ItemRun {
  Gradient* gradient = nullptr;
  planning::Piece piece;
  CompressorInstance* compressor = nullptr;
  MemoryInstance* memory = nullptr;
  std::vector<RoundNeed> rounds;  // none: only compensated
  uint32_t work_is = 0;
  uint32_t n_scalars = 0;
  bool keeps = false;               // what encode takes out can be given back
  bool carry_joins_result = false;  // the memory has momentum: a carry goes round it
  bool widened = false;  // the gradient is not in a dtype the compressor takes: works on float32
  bool passes_through = false;        // the message is the gradient's own storage
  uint32_t dtype = PENSTOCK_FLOAT32;  // of work and out
  penstock_item for_compressor{};
  penstock_item for_memory{};
  std::vector<const penstock_tensor*> compressor_states, memory_states;
  penstock_tensor work_state{};    // a copy of the state tensor's view, when work is a state
  Buffer wide;                     // float32 copy of the gradient, and of the result
  Buffer work;                     // scratch work
  std::deque<PayloadStorage> own;  // per round
  std::vector<std::deque<PayloadStorage>>
      received;             // per round: one that joins all ranks, or one per rank
  PayloadStorage refused;   // entries a composite returned
  PayloadStorage taken;     // own less refused, for memory.record
  PayloadStorage returned;  // decoded own payload, for give_back
  Buffer refused_data, taken_data, result_data, returned_data;
  bool on_composite = false;
  bool folded = false;  // encode compensates in the same sweep, as `fold` says
  penstock_fold fold{};

  void* storage() const;  // the piece within the gradient's own storage
  bool wants_mean() const { return rounds.empty() || rounds.back().result == PENSTOCK_RESULT_MEAN; }
};

// One call to a compressor: items of one instance that are in the same round and meet in the same
// way.
struct CompressorCall {
  CompressorInstance* compressor = nullptr;
  uint32_t round = 0;
  uint64_t n_ranks = 1;  // payloads per item at decode
  std::vector<size_t> positions;
  std::vector<const penstock_item*> items;
  std::vector<penstock_payload*> own;
  std::vector<const penstock_payload*> received;        // [item * n_ranks + rank]
  const penstock_fold_encoder* fold_encoder = nullptr;  // where an item is folded
  std::vector<const penstock_fold*> folds;              // null for items that are not
  uint64_t took_us = 0;                                 // in this step
};

// One call to a memory.
struct MemoryCall {
  MemoryInstance* memory = nullptr;
  uint32_t n_scalars = 0;
  uint64_t scalars_first = 0;  // in the prologue message
  std::vector<size_t> positions;
  std::vector<const penstock_item*> items;
  std::vector<const penstock_item*> unfolded;      // those that encode does not compensate
  std::vector<const penstock_payload*> taken;      // for record
  std::vector<const penstock_payload*> give_back;  // scratch for give_back calls
};

// A leg of a bucket's route.
struct Leg {
  explicit Leg(const LegKind& kind) : kind(kind) {}
  LegKind kind;
  std::vector<std::vector<std::unique_ptr<MessageRun>>> messages;  // per round
};

class BucketRun {
 public:
  static constexpr uint64_t kSmallElements = 4096;

  BucketRun(SetContext& context, planning::Bucket plan, uint32_t number)
      : context(context), plan(std::move(plan)), number(number) {}

  SetContext& context;
  planning::Bucket plan;
  uint32_t number;  // within the phase; also the priority
  std::deque<ItemRun> items;
  std::vector<CompressorCall> encode_calls;  // by round
  std::vector<CompressorCall> decode_calls;
  std::vector<MemoryCall> memory_calls;
  uint32_t n_rounds = 0;
  std::unique_ptr<MessageRun> prologue;
  std::vector<Leg> legs;  // none: nothing is sent
  std::string label;      // for messages: "bucket 3"
  std::string lane;       // for traces: set, number and gradients
  std::string scheme;     // for traces: compressors and memories

  // The step under way.
  uint32_t n_gradients = 0;  // distinct ones among the items; fixed at plan time
  std::atomic<uint32_t> gradients_missing{0};
  bool started = false;         // its job; under the set's mutex
  bool nonfinite = false;       // on this rank
  bool is_void = false;         // on some rank: the bucket is given up
  bool compensated = false;     // the memories have seen this rank's gradients
  uint32_t rounds_encoded = 0;  // an item whose last round is among them was taken out of work
  bool ran = false;             // in this step
  uint64_t exchange_bytes = 0;  // handed over in the round under way
  uint64_t ready_us = 0, encode_us = 0, exchange_us = 0, decode_us = 0, exchange_start_us = 0;
  JobFrame frame;
  Job job;

  // Launching of legs that wait for the next forward.
  std::atomic<bool> launched{false};
  std::atomic<bool> waits_for_launch{false};

  // ---- parked on the network ----
  std::atomic<uint32_t> pending{0};
  std::mutex failure_mutex;
  Status failure;
  void message_finished(Status status);
  void begin_transfers(uint32_t n_messages) {
    pending.store(n_messages + 1, std::memory_order_relaxed);
  }
  // Awaitable: resumes when every message handed over since begin_transfers has ended.
  struct Arrival {
    BucketRun& bucket;
    bool await_ready() const noexcept { return false; }
    bool await_suspend(std::coroutine_handle<>) noexcept;
    void await_resume() const noexcept {}
  };
  Arrival arrival() { return Arrival{*this}; }
  // Awaitable: resumes when launch() was called for this step.
  struct Launch {
    BucketRun& bucket;
    bool await_ready() const noexcept { return bucket.launched.load(); }
    bool await_suspend(std::coroutine_handle<>) noexcept;
    void await_resume() const noexcept {}
  };
  Launch next_forward() { return Launch{*this}; }
  void launch();  // [any]

  // Its whole job takes microseconds.
  bool is_small() const {
    uint64_t elements = 0;
    for (const ItemRun& item : items)
      if ((elements += item.piece.numel) > kSmallElements) return false;
    return true;
  }
  bool defers() const { return !legs.empty() && legs.back().kind.waits_for_forward; }
  // Calls body(leg number, round, message) for all messages but the prologue.
  template <typename Body>
  void each_message(const Body& body) {
    for (uint32_t leg = 0; leg < legs.size(); ++leg)
      for (uint32_t round = 0; round < legs[leg].messages.size(); ++round)
        for (auto& message : legs[leg].messages[round]) body(leg, round, *message);
  }
};

// The story of one bucket in one step (job.cpp).
Job run_bucket(BucketRun& bucket);

// Gives what this rank sent in the last round back to its memories: void, or not applied. [engine]
Status give_back_own(BucketRun& bucket);

}  // namespace penstock
