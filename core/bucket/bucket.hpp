// A bucket at run time: pieces, codings, messages and buffers. All are made at plan time, and
// nothing here allocates on the step path.
//
// Words that all of core/bucket uses:
//   phase       the step's number modulo the period of the scheme; each phase has its buckets
//   void        gradients of some rank are not finite: every rank discards the bucket's result
//   announced   a message is announced if a header is sent before it (announcement.hpp)
//   forgotten   a step is forgotten if its results were not applied: its changes are undone
//   true units  values without the loss scale of the frontend
//   pairs       a payload of indices and values
//   [engine], [control], [any], [application]   the thread that calls a function
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

// The messages that are sent before the announced messages of a round. All pointers are null if the
// round has no announced message.
struct Announcement {
  MessageRun* header = nullptr;
  MessageRun* ticket = nullptr;
  GatherMessage* gathered = nullptr;  // the announced gather, if there is one
  uint32_t n_messages = 0;            // announced messages in the round
};

class BucketRun;
class Placement;

// A leg of a bucket's route.
struct Leg {
  LegKind kind;
  Coding* coding = nullptr;        // the coding whose items it moves
  bool waits_for_forward = false;  // this leg and all later ones wait for the next forward
  bool tells = false;  // the last dense leg. It is sent for void buckets too, because some ranks
                       // learn only from it that the bucket is void
  bool ends_coding = false;  // the result is decoded in this leg, and `finish` follows
  std::vector<std::vector<std::unique_ptr<MessageRun>>> messages;  // per round
  std::vector<Announcement> announcements;                         // per round

  bool sends() const;
  // Whether the messages of this leg are sent in this step. For a void bucket they are sent only if
  // `tells` is set for the leg.
  bool goes(const BucketRun& bucket) const;
  // The messages of a round, except the messages that have a stage of their own.
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
  bool only_compensates = false;  // this phase sends none of its gradients
  bool ends_at_owners = false;    // results stay with their owners
  // If a group has more ranks, gathered payloads come in slices of so many ranks (slices.hpp).
  uint32_t ranks_at_once = UINT32_MAX;
  std::deque<PieceRun> pieces;
  std::vector<std::unique_ptr<Coding>> codings;
  std::vector<Leg> legs;
  // Adds to the program the stages that the place of the pieces needs; never null.
  std::unique_ptr<Placement> placement;
  Program program;     // of one step; it is made last (program.hpp)
  std::string label;   // for messages: "bucket 3"
  std::string lane;    // for traces: set, number and gradients
  std::string scheme;  // for traces: compressors and memories

  // The step under way.
  uint32_t n_gradients = 0;  // distinct gradients of the pieces; fixed at plan time
  std::atomic<uint32_t> gradients_missing{0};
  bool started = false;         // its job has started; guarded by the set's mutex
  bool nonfinite = false;       // on this rank
  bool is_void = false;         // some rank is nonfinite: all ranks discard the result
  bool ran = false;             // in this step
  uint64_t exchange_bytes = 0;  // handed over in the current round
  uint64_t ready_us = 0, encode_us = 0, exchange_us = 0, decode_us = 0, other_us = 0;
  uint64_t counted_us = 0;  // of the stage under way; they count as another part than the stage's
  struct Took {
    uint64_t encode_us = 0, exchange_us = 0, decode_us = 0;
  } last_step;  // times of the last finished step; the application may read them while the next
                // step runs
  // True: the host's time in a stage counts as the stage's time. False: the device's own time is
  // measured, and the host's time counts only for exchanges and for calls that work on the CPU.
  bool counts_host_time = true;
  bool is_watched = false;     // the times of its calls are measured; fixed at plan time
  bool owes_backward = false;  // the backward part of this step has not ended
  Job job;

  // Launching of legs that wait for the next forward.
  uint64_t forward_bytes = 0;    // bytes received in the first such leg; fixed at plan time
  bool forward_arrived = false;  // those bytes arrived, or the job ended without them; guarded by
                                 // the set's mutex
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
  // [engine] Parks the job for `wait`; false if the awaited event has happened already.
  bool park(Stage::Wait wait);
  void launch();  // [any]

  // Adds `us` to the time that the step takes for this part.
  void add_time(Stage::Part part, uint64_t us) {
    if (counts_host_time || part == Stage::Part::exchange) time_of(part) += us;
  }
  // The stage under way has spent `us` on another part than its own.
  void add_apart(Stage::Part part, uint64_t us) {
    if (!counts_host_time) return;
    time_of(part) += us;
    counted_us += us;
  }
  uint64_t& time_of(Stage::Part part);

  // Whether the job sends nothing after its first coding.
  bool ends_early() const { return only_compensates || ends_at_owners; }

  // Whether its whole job takes only microseconds.
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
  // Calls body(leg number, round, message) for all messages; a prologue comes with the first round
  // of its leg.
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
