// A bucket as it runs: pieces, codings, messages and buffers, all made at plan time. On the step
// path nothing here allocates.
//
// Words that all of core/bucket uses:
//   phase       the step's number modulo the period of the scheme; each phase has its buckets
//   void        some rank's gradients are not finite: every rank discards the bucket's result
//   announced   of a message: a header goes before it (announcement.hpp)
//   forgotten   of a step: its results were not applied, and its traces are dropped
//   true units  gradients without the loss scale of the frontend
//   pairs       a payload of indices and values
//   [engine], [control], [any], [application]   the thread that calls it
#pragma once

#include "core/base/mutex.hpp"
#include "core/bucket/coding.hpp"
#include "core/bucket/job.hpp"
#include "core/plan/route.hpp"

#include <atomic>
#include <deque>
#include <memory>
#include <vector>

namespace penstock {

struct GatherMessage;

// What is sent before the announced messages of a round; all null if the round has none.
struct Announcement {
  MessageRun* header = nullptr;
  MessageRun* turn = nullptr;
  GatherMessage* gathered = nullptr;  // the announced gather, if there is one
  uint32_t n_messages = 0;            // announced ones
};

class BucketRun;
class Placement;

// A leg of a bucket's route.
struct Leg {
  LegKind kind;
  Coding* coding = nullptr;        // whose items it moves
  bool waits_for_forward = false;  // this leg and all later ones wait for the next forward
  bool tells = false;  // the last dense leg: sent for void buckets too, since some ranks learn only
                       // from it that the bucket is void
  bool ends_coding = false;  // the result is decoded in it; `finish` follows
  std::vector<std::vector<std::unique_ptr<MessageRun>>> messages;  // per round
  std::vector<Announcement> announcements;                         // per round

  bool sends() const;
  // Whether its messages are sent in this step. A void bucket sends only those of a leg that tells.
  bool goes(const BucketRun& bucket) const;
  // Those of a round that have no stage of their own.
  std::vector<MessageRun*> sent_together(uint32_t round) const {
    std::vector<MessageRun*> found;
    for (const auto& message : messages[round])
      if (!message->has_own_stage) found.push_back(message.get());
    return found;
  }
};

// A stage of one round of a leg; `Base` is Stage or a class derived from it.
template <typename Base>
class StageOfRound : public Base {
 protected:
  template <typename... Arguments>
  StageOfRound(Leg& leg, uint32_t round, Arguments... arguments)
      : Base(arguments...), leg_(leg), round_(round) {}
  Leg& leg_;
  const uint32_t round_;
};
using RoundStage = StageOfRound<Stage>;

class BucketRun {
 public:
  static constexpr uint64_t kSmallElements = 4096;
  BucketRun(SetContext& context, planning::Bucket plan, uint32_t number);
  ~BucketRun();

  SetContext& context;
  planning::Bucket plan;
  uint32_t number;                // within the phase; also the priority
  bool only_compensates = false;  // this phase sends nothing of its gradients
  bool ends_at_owners = false;    // results stay with their owners
  std::deque<PieceRun> pieces;
  std::vector<std::unique_ptr<Coding>> codings;
  std::vector<Leg> legs;
  // What the place of its pieces adds to its program; never null.
  std::unique_ptr<Placement> placement;
  Program program;     // of one step; after all else is laid out (program.hpp)
  std::string label;   // for messages: "bucket 3"
  std::string lane;    // for traces: set, number and gradients
  std::string scheme;  // for traces: compressors and memories

  // The step under way.
  uint32_t n_gradients = 0;  // distinct ones among the pieces; fixed at plan time
  std::atomic<uint32_t> gradients_missing{0};
  bool started = false;         // its job; under the set's mutex
  bool nonfinite = false;       // on this rank
  bool is_void = false;         // some rank is nonfinite: all ranks discard the result
  bool ran = false;             // in this step
  uint64_t exchange_bytes = 0;  // handed over in the round under way
  uint64_t ready_us = 0, encode_us = 0, exchange_us = 0, decode_us = 0, other_us = 0;
  struct Took {
    uint64_t encode_us = 0, exchange_us = 0, decode_us = 0;
  } last_step;  // times of the last step that has ended: the application may read them while the
                // next one runs
  // True: the host's time in a stage counts as the stage's. False if the device's own time is
  // measured: then the host's time counts only for exchanges, and for calls that work on the CPU.
  bool counts_host_time = true;
  bool is_watched = false;     // some scheduler plans by what its calls take; fixed at plan time
  bool owes_backward = false;  // the backward part of this step has not ended
  Job job;

  // Launching of legs that wait for the next forward.
  uint64_t forward_bytes = 0;    // that this rank receives in the first of them; fixed at plan time
  bool forward_arrived = false;  // that has arrived, or the job has ended without; under the set's
                                 // mutex
  std::atomic<bool> launched{false};
  std::atomic<bool> waits_for_launch{false};

  // ---- parked on the network ----
  std::atomic<uint32_t> pending{0};
  Mutex failure_mutex;
  Status failure;
  void message_finished(Status status);
  void begin_transfers(uint32_t n_messages) {
    pending.store(n_messages + 1, std::memory_order_relaxed);
  }
  // [engine] Parks the job for `wait`; false if that has come already.
  bool park(Stage::Wait wait);
  void launch();  // [any]

  // Adds `us` to the time that the step takes for this part.
  void add_time(Stage::Part part, uint64_t us) {
    if (counts_host_time || part == Stage::Part::exchange) time_of(part) += us;
  }
  uint64_t& time_of(Stage::Part part);

  // Nothing follows its first coding.
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

inline bool Leg::goes(const BucketRun& bucket) const {
  return !bucket.is_void || tells;
}

inline bool Leg::sends() const {
  for (const auto& round : messages)
    if (!round.empty()) return true;
  return false;
}

}  // namespace penstock
