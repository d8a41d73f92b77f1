// A bucket as it runs: pieces, codings, messages and buffers, all made at plan time. On the step
// path nothing here allocates.
#pragma once

#include "core/bucket/coding.hpp"
#include "core/bucket/job.hpp"
#include "core/plan/route.hpp"

#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

namespace penstock {

// What goes before the messages of a round that go from device to device (direct.hpp); all null
// where none does.
struct Prelude {
  MessageRun* header = nullptr;
  MessageRun* turn = nullptr;
  MessageRun* gathered = nullptr;  // the one that moves pairs, if any does
  uint32_t n_messages = 0;         // that go so
};

// A leg of a bucket's route.
struct Leg {
  LegKind kind;
  Coding* coding = nullptr;        // whose items it moves
  bool waits_for_forward = false;  // it and all that follow
  bool tells = false;              // runs for void buckets too: some ranks only hear of it here
  bool ends_coding = false;        // what comes out of it is the result
  std::vector<std::vector<std::unique_ptr<MessageRun>>> messages;  // per round
  std::vector<Prelude> preludes;                                   // per round

  bool sends() const;
};

struct DevicePart;

class BucketRun {
 public:
  static constexpr uint64_t kSmallElements = 4096;
  // From a device: gradients into mirrors, and what a look at residents has found; what a look at
  // sums of an owner has, and what memories measure; then counts of payloads, and those into
  // messages; what direct messages send, which stays there; what a look at peers' indices has
  // found. Back to it: results.
  enum class Copies {
    in,
    of_sums,
    of_scalars,
    of_counts,
    of_payloads,
    of_sends,
    of_verdicts,
    back
  };

  BucketRun(SetContext& context, planning::Bucket plan, uint32_t number);
  ~BucketRun();

  SetContext& context;
  planning::Bucket plan;
  uint32_t number;                     // within the phase; also the priority
  bool only_compensates = false;       // the phase leaves its gradients out: nothing is sent
  bool ends_at_owners = false;         // who do not send results on
  bool has_devices = false;            // some of its gradients lie on devices
  std::unique_ptr<DevicePart> device;  // null: none of them is worked on there
  std::deque<PieceRun> pieces;
  std::vector<std::unique_ptr<Coding>> codings;
  std::vector<Leg> legs;
  std::string label;   // for messages: "bucket 3"
  std::string lane;    // for traces: set, number and gradients
  std::string scheme;  // for traces: compressors and memories

  // The step under way.
  uint32_t n_gradients = 0;  // distinct ones among the pieces; fixed at plan time
  std::atomic<uint32_t> gradients_missing{0};
  bool started = false;         // its job; under the set's mutex
  bool nonfinite = false;       // on this rank
  bool is_void = false;         // on some rank: the bucket is given up
  bool ran = false;             // in this step
  uint64_t exchange_bytes = 0;  // handed over in the round under way
  uint64_t ready_us = 0, encode_start_us = 0, encode_us = 0, exchange_us = 0, decode_us = 0,
           exchange_start_us = 0;
  struct Took {
    uint64_t encode_us = 0, exchange_us = 0, decode_us = 0;
  } last_step;  // that has ended; [application], while the next one runs
  JobFrame frame;
  Job job;
  Copies awaited_copies = Copies::in;
  size_t pieces_looked_at = 0;  // whose copies have ended

  // Launching of legs that wait for the next forward.
  uint64_t forward_bytes = 0;    // that come in for the first of them; fixed at plan time
  bool forward_arrived = false;  // or never comes; under the set's mutex
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
  // Awaitable: resumes when the engine has done what goes before this bucket.
  struct Turn {
    BucketRun& bucket;
    bool await_ready() const noexcept { return false; }
    void await_suspend(std::coroutine_handle<>) noexcept;
    void await_resume() const noexcept {}
  };
  Turn turn() { return Turn{*this}; }

  // ---- parked on a device ----
  // Awaitable: resumes when all copies of a kind have ended; one that fails leaves its error in
  // `failure`. Not suspended where there are none.
  struct CopiesEnd {
    BucketRun& bucket;
    Copies copies;
    bool await_ready() const noexcept { return !bucket.copies_anything(copies); }
    void await_suspend(std::coroutine_handle<>) noexcept;
    void await_resume() const noexcept {}
  };
  CopiesEnd gradients_arrived() { return CopiesEnd{*this, Copies::in}; }
  CopiesEnd sums_looked_at() { return CopiesEnd{*this, Copies::of_sums}; }
  CopiesEnd scalars_brought() { return CopiesEnd{*this, Copies::of_scalars}; }
  CopiesEnd counts_brought() { return CopiesEnd{*this, Copies::of_counts}; }
  CopiesEnd payloads_brought() { return CopiesEnd{*this, Copies::of_payloads}; }
  CopiesEnd sends_finished() { return CopiesEnd{*this, Copies::of_sends}; }
  CopiesEnd verdicts_brought() { return CopiesEnd{*this, Copies::of_verdicts}; }
  CopiesEnd results_returned() { return CopiesEnd{*this, Copies::back}; }
  bool copies_anything(Copies copies) const;
  // [engine] Whether what it parks for has come. `look`: see Mirror.
  bool copies_have_ended(uint64_t look);
  Status look_for_copies(uint64_t look, bool& ended);

  // Its route ends with the first coding.
  bool ends_early() const { return only_compensates || ends_at_owners; }

  // Its whole job takes microseconds.
  bool is_small() const {
    uint64_t elements = 0;
    for (const PieceRun& piece : pieces)
      if ((elements += piece.piece.numel) > kSmallElements) return false;
    return true;
  }
  bool defers() const {  // some leg waits for the next forward
    for (const Leg& leg : legs)
      if (leg.waits_for_forward && leg.sends()) return true;
    return false;
  }
  // Calls body(leg number, round, message) for all messages, prologues with their leg's first
  // round.
  template <typename Body>
  void each_message(const Body& body) {
    for (uint32_t leg = 0; leg < legs.size(); ++leg) {
      if (legs[leg].kind.encodes && legs[leg].coding->prologue)
        body(leg, 0, *legs[leg].coding->prologue);
      for (uint32_t round = 0; round < legs[leg].messages.size(); ++round)
        for (auto& message : legs[leg].messages[round]) body(leg, round, *message);
    }
  }
};

inline bool Leg::sends() const {
  for (const auto& round : messages)
    if (!round.empty()) return true;
  return false;
}

// The story of one bucket in one step (job.cpp).
Job run_bucket(BucketRun& bucket);

}  // namespace penstock
