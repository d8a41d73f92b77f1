// The communication thread: the only thread that calls a transport.
//
// Others hand it exchanges; it submits them, drives them to their end and reports. On an ORDERED
// channel exchanges go out in the order of their sequence numbers; on a TAGGED one as they come. It
// never waits for a peer: it polls, yields, and sleeps a little longer each time nothing moves,
// because a pure spin starves the compute threads it shares cores with.
#pragma once

#include "core/base/mutex.hpp"
#include "core/base/status.hpp"
#include "core/base/task.hpp"
#include "core/comm/group.hpp"
#include "core/control/activity.hpp"

#include <penstock/collective.h>

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace penstock {

// One opened group of one collective. Owned by Communication; lives until close_channel or
// shutdown.
struct Channel {
  const penstock_collective* table = nullptr;
  void* instance = nullptr;
  penstock_channel* handle = nullptr;
  penstock_collective_traits traits{};
  Group members;
  penstock_group group{};             // of the members, for the transport
  Channel* base = nullptr;            // for a composite
  penstock_base_channel base_view{};  // what the composite sees of it
  std::string name;                   // for messages and traces
  uint64_t next_sequence = 0;         // ORDERED: the sequence number that may go out next
  // What this rank handed to the transport; a composite's count with its base.
  std::atomic<uint64_t> bytes_sent{0};
  std::atomic<uint64_t> bytes_moved{0};  // of these, what went out to other ranks, each time
  std::atomic<uint64_t> messages_sent{0};
  bool aborted = false;  // [comm]
};

// The channel from device to device that all sets of a run share, and whose turn it is on it. A
// device must see the messages of all sets in one order on every rank, or two that wait for each
// other's streams never end. So rank 0 gives each exchange a number when it has heard that all
// ranks are ready for it, and every rank sends in the order of numbers. That no number is given
// before means that whoever waits for one waits for nothing that an application has yet to do.
//
// Its ranks are all of the run, or on routes with legs within hosts those of one: then each host
// has an order of its own, which the first of its ranks gives.
struct BetweenDevices {
  Channel* channel = nullptr;             // null: the run has none
  uint32_t level = PENSTOCK_LEVEL_WORLD;  // of its ranks
  static constexpr int32_t kNoDevice = -1;
  int32_t device = kNoDevice;          // [comm] TAKES_FINISHED: the thread's, and so all messages'
  std::atomic<uint64_t> next_turn{0};  // its rank 0's; the channel's sequence number
};

// One message and what happens at its end. Owned by whoever submits it; must stay alive until
// finished is called.
struct Transfer {
  penstock_message message{};
  // ORDERED channels: position in the plan's sequence, without gaps; or kAtOnce, when nothing else
  // is under way.
  static constexpr uint64_t kAtOnce = UINT64_MAX;
  uint64_t sequence = 0;
  // After this long from its submission the wait is over, whatever the transport does; 0: never.
  // The transport is told of no deadline of its own: who is late is for Control to say.
  uint64_t limit_us = 0;
  // [comm] After a message that arrived well, while its ticket still is valid: for
  // penstock_collective::returned.
  virtual Status collect(Channel&, penstock_ticket*) { return {}; }
  // [comm] Called once, last of all: from then on nobody touches the exchange or its buffers. Must
  // not block; typically puts a job back into the engine's queue.
  virtual void finished(Status status) = 0;

 protected:
  ~Transfer() = default;
};

class Communication {
 public:
  // `calls`: where calls of transports are noted; null: nowhere.
  explicit Communication(CallSlot* calls = nullptr);
  ~Communication();  // stops the thread; unfinished exchanges end with ABORTED
  Communication(const Communication&) = delete;
  Communication& operator=(const Communication&) = delete;

  // Runs `task` on the communication thread and waits for it: opening, planning and closing of
  // channels.
  Status run(const std::function<Status()>& task);
  // The same for a task that owns what it refers to: the caller goes on after `limit_us`, with
  // DEADLINE_EXCEEDED, and the task is left to itself.
  // `waits` is told from time to time how long it has been.
  struct Waits {
    uint64_t every_us;
    std::function<void(uint64_t waited_us)> told;
  };
  Status run_within(uint64_t limit_us, std::function<Status()> task, const Waits& waits = {});

  // Opens a channel for a group. `base` null: table is a transport. [control],
  // collective over the group.
  struct OpenRequest {
    const penstock_collective* table;
    void* instance;
    Group group = Group();
    uint64_t group_id;
    Channel* base;
    const penstock_key_value_store* store;
    uint64_t timeout_us;
    std::string name;
  };
  Result<Channel*> open_channel(const OpenRequest& request);
  void close_channel(Channel* channel);

  // [any] Hands over a message. Errors arrive in exchange->finished, also those of submit itself.
  void submit(Channel* channel, Transfer* exchange);
  // [any] The same for one of many: it may lie until the next announce.
  void submit_quietly(Channel* channel, Transfer* exchange);
  void announce() { wake_.notify_one(); }  // [any]

  // Told after each round in which exchanges may have finished.
  struct Listener {
    virtual void polled() = 0;  // [comm]
    virtual ~Listener() = default;
  };
  // [control] Null: nobody.
  void set_listener(Listener* listener);

  // [any] On an ORDERED channel nothing will be sent for `sequence`: its turn passes.
  void skip(Channel* channel, uint64_t sequence);

  // [any] Blocks the caller in the transport: submits and waits for one message, as long as its
  // deadline. For set-up, not for steps.
  Status transfer_and_wait(Channel* channel, const penstock_message& message);

  // [any] Every exchange, now and later, ends with `reason`. Buffers of unfinished exchanges are
  // abandoned, not freed.
  void abort(const Status& reason);
  bool aborted() const;
  Status abort_reason() const;

  // [any] A hint that application threads wait (true) or compute (false): how eagerly to poll.
  void set_waiting(bool waiting) {
    waiting_.store(waiting, std::memory_order_relaxed);
    if (waiting) announce();  // it may be in a long sleep
  }
  bool waiting() const { return waiting_.load(std::memory_order_relaxed); }

 private:
  struct Pending {
    Channel* channel;
    Transfer* exchange;
    penstock_ticket* ticket;
    uint64_t submitted_us;
  };
  struct Submission {
    Channel* channel;
    Transfer* exchange;  // null: this turn is skipped
    uint64_t sequence;
  };
  std::shared_ptr<Task> hand_over(std::function<Status()> body);  // null: the thread has ended
  void loop();
  void start(const Submission& submission);
  void go(Channel* channel, Transfer* exchange);
  void end_held(Channel& channel);
  void finish(Transfer& exchange, Status status);
  bool poll_once();  // true when something ended
  void fail_everything(const Status& reason);
  bool take_work(unsigned idle_polls);

  CallSlot* const calls_;
  mutable Mutex mutex_;
  Condition wake_;
  // Swapped with taken_, so that steady state allocates nothing.
  std::vector<Submission> queue_ PENSTOCK_GUARDED_BY(mutex_);
  std::vector<std::shared_ptr<Task>> tasks_ PENSTOCK_GUARDED_BY(mutex_);
  Status abort_reason_ PENSTOCK_GUARDED_BY(mutex_);
  bool abort_pending_ PENSTOCK_GUARDED_BY(mutex_) = false;
  bool stopping_ PENSTOCK_GUARDED_BY(mutex_) = false;
  std::atomic<bool> waiting_{false};
  std::atomic<bool> aborted_{false};
  // [comm] only from here on
  Listener* listener_ = nullptr;
  bool some_finished_ = false;  // since the listener was told
  std::vector<Submission> taken_;
  std::vector<std::shared_ptr<Task>> taken_tasks_;
  std::vector<Pending> in_flight_;
  std::vector<std::unique_ptr<Channel>> channels_;
  std::map<std::pair<Channel*, uint64_t>, Transfer*> held_;  // ORDERED: not their turn yet
  std::thread thread_;
};

}  // namespace penstock
