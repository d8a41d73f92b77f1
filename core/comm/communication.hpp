// The communication thread: the only thread that calls a transport.
//
// Other threads hand it exchanges; it submits them, drives them to their end and reports the
// result. On an ORDERED channel exchanges are sent in the order of their sequence numbers, on a
// TAGGED channel in the order of submission. The thread never blocks on a peer: it polls, yields,
// and sleeps a little longer each time nothing moves, because pure spinning would starve the
// compute threads on its core.
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
  penstock_group group{};             // the members' group, for the transport
  Channel* base = nullptr;            // set for a composite
  penstock_base_channel base_view{};  // the composite's view of the base
  std::string name;                   // used in messages and traces
  uint64_t next_sequence = 0;         // ORDERED: the next sequence number to send
  // Bytes that this rank handed to the transport. A composite's bytes are counted by its base.
  std::atomic<uint64_t> bytes_sent{0};
  std::atomic<uint64_t> bytes_moved{0};  // sent to other ranks; bytes sent to two ranks count twice
  std::atomic<uint64_t> messages_sent{0};
  bool aborted = false;  // [comm]
};

// The channel from device to device that all sets of a run share, and the order of its messages. A
// device must see the messages of all sets in one order on every rank; otherwise two messages that
// wait for each other's streams would deadlock. Therefore rank 0 numbers an exchange only when all
// ranks have reported that they are ready for it, and every rank sends in the order of the numbers.
// An exchange with a number never waits for a later action of the application.
//
// The channel spans all ranks of the run. On routes with legs within hosts it spans the ranks of
// one host: then each host has its own order, and the first rank of the host gives the numbers.
struct BetweenDevices {
  Channel* channel = nullptr;             // null: the run has none
  uint32_t level = PENSTOCK_LEVEL_WORLD;  // the level of its ranks
  static constexpr int32_t kNoDevice = -1;
  // [comm] TAKES_FINISHED: the thread's device, and so the device of all messages
  int32_t device = kNoDevice;
  // On the channel's rank 0: the next number; it is the channel's sequence number.
  std::atomic<uint64_t> next_ticket{0};
};

// One message and its completion. Owned by the submitter; must stay alive until finished is called.
struct Transfer {
  penstock_message message{};
  // ORDERED channels: position in the plan's sequence, without gaps; or kAtOnce if nothing else is
  // under way.
  static constexpr uint64_t kAtOnce = UINT64_MAX;
  uint64_t sequence = 0;
  // This long after submission the wait ends, even if the transport has not finished; 0: never. The
  // transport itself gets no deadline, because Control decides whether a rank is late.
  uint64_t limit_us = 0;
  // [comm] Called for penstock_collective::returned after a message that arrived without an error,
  // while its ticket is still valid.
  virtual Status collect(Channel&, penstock_ticket*) { return {}; }
  // [comm] The last call, made once: afterwards no thread uses the exchange or its buffers. Must
  // not block; typically puts a job back into the engine's queue.
  virtual void finished(Status status) = 0;

 protected:
  ~Transfer() = default;
};

class Communication {
 public:
  // `calls`: the slot that records calls of transports; null: they are not recorded.
  explicit Communication(CallSlot* calls = nullptr);
  ~Communication();  // stops the thread; unfinished exchanges end with ABORTED
  Communication(const Communication&) = delete;
  Communication& operator=(const Communication&) = delete;

  // Runs `task` on the communication thread and waits for it: used to open, plan and close
  // channels.
  Status run(const std::function<Status()>& task);
  // Like run(), for a task that owns everything it refers to: after `limit_us` the caller continues
  // with DEADLINE_EXCEEDED while the task keeps running. `waits.notify` receives the waiting time
  // at intervals.
  struct Waits {
    uint64_t every_us;
    std::function<void(uint64_t waited_us)> notify;
  };
  Status run_within(uint64_t limit_us, std::function<Status()> task, const Waits& waits = {});

  // Opens a channel for a group. Null `base`: the table is a transport. [control], collective over
  // the group.
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

  // [any] Hands over a message. All errors arrive in exchange->finished, errors of submit included.
  void submit(Channel* channel, Transfer* exchange);
  // [any] Like submit(), for one message of several: it may stay in the queue until the next
  // announce.
  void submit_quietly(Channel* channel, Transfer* exchange);
  void announce() { wake_.notify_one(); }  // [any]

  // Called after each round of polling in which exchanges may have finished.
  struct Listener {
    virtual void polled() = 0;  // [comm]
    virtual ~Listener() = default;
  };
  // [control] Null: removes the listener.
  void set_listener(Listener* listener);

  // [any] ORDERED channels: no message will be sent for `sequence`, so the next number may be sent.
  void skip(Channel* channel, uint64_t sequence);

  // [any] Submits one message and blocks the caller until it ends or its deadline passes. For
  // set-up, not for steps.
  Status transfer_and_wait(Channel* channel, const penstock_message& message);

  // [any] Ends every present and later exchange with `reason`. Buffers of unfinished exchanges are
  // abandoned, not freed.
  void abort(const Status& reason);
  bool aborted() const;
  Status abort_reason() const;

  // [any] A hint whether application threads wait (true) or compute (false); it controls how
  // eagerly the thread polls.
  void set_waiting(bool waiting) {
    waiting_.store(waiting, std::memory_order_relaxed);
    if (waiting) announce();  // the thread may be in a long sleep
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
    Transfer* exchange;  // null: this sequence number is skipped
    uint64_t sequence;
  };
  std::shared_ptr<Task> hand_over(std::function<Status()> body);  // null: the thread has ended
  void loop();
  void start(const Submission& submission);
  void go(Channel* channel, Transfer* exchange);
  void end_held(Channel& channel);
  void finish(Transfer& exchange, Status status);
  bool poll_once();  // true when an exchange ended
  void fail_everything(const Status& reason);
  bool take_work(unsigned idle_polls);

  CallSlot* const calls_;
  mutable Mutex mutex_;
  Condition wake_;
  // Swapped with taken_, so that the steady state allocates nothing.
  std::vector<Submission> queue_ PENSTOCK_GUARDED_BY(mutex_);
  std::vector<std::shared_ptr<Task>> tasks_ PENSTOCK_GUARDED_BY(mutex_);
  Status abort_reason_ PENSTOCK_GUARDED_BY(mutex_);
  bool abort_pending_ PENSTOCK_GUARDED_BY(mutex_) = false;
  bool stopping_ PENSTOCK_GUARDED_BY(mutex_) = false;
  std::atomic<bool> waiting_{false};
  std::atomic<bool> aborted_{false};
  // Everything below is [comm] only.
  Listener* listener_ = nullptr;
  bool some_finished_ = false;  // since the last call of the listener
  std::vector<Submission> taken_;
  std::vector<std::shared_ptr<Task>> taken_tasks_;
  std::vector<Pending> in_flight_;
  std::vector<std::unique_ptr<Channel>> channels_;
  // ORDERED: exchanges that wait for their number
  std::map<std::pair<Channel*, uint64_t>, Transfer*> held_;
  std::thread thread_;
};

}  // namespace penstock
