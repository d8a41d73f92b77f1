// Named operations: collectives outside any set, matched across ranks by name (runtime.h,
// penstock_operation_*).
//
// submit validates and asks Control for the operation; when every rank of the group has asked, the
// worker thread opens the group's channel if it is new, builds one message with exact counts and
// hands it to the communication thread; the worker scales and finishes when the message has ended.
// The order of responses is the same on all ranks, so the worker opens channels and numbers
// messages in an agreed order.
#pragma once

#include "core/base/status.hpp"
#include "core/comm/communication.hpp"
#include "core/control/control.hpp"
#include "core/trace/timeline.hpp"

#include <penstock/runtime.h>

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace penstock {

// One operation on its way. Shared between whoever waits and the threads that carry it out.
class Operation {
 public:
  virtual ~Operation() = default;

  // [any] True when wait would return at once.
  virtual bool done() const = 0;
  // [any] Blocks until the end. MISMATCH on every rank when ranks disagree. May be called again:
  // same answer.
  virtual Status wait() = 0;

  struct Output {
    const void* data = nullptr;
    uint64_t bytes = 0;
    // First-dimension rows. ALL_GATHER and ALL_TO_ALL: what came from each rank of the group;
    // REDUCE_SCATTER: what each rank got; empty for the others.
    std::span<const uint64_t> rows;
  };
  // [any] After a successful wait; valid as long as the operation. With an output tensor of the
  // caller's, data is that tensor's. FAILED_PRECONDITION before the end, the operation's own error
  // after a failure.
  virtual Result<Output> result() const = 0;
};

class OperationWorker;

class Operations {
 public:
  struct Options {
    Control* control = nullptr;              // all borrowed, all outlive this object
    Communication* communication = nullptr;  // unused in a world of one
    const penstock_collective* table = nullptr;
    void* instance = nullptr;
    Group world;
    uint64_t open_timeout_us = 60'000'000;
    uint64_t limit_us = 0;  // of each message, from submission to the transport; 0: none
    // For operations of the whole world; used by nothing else from here on. Null: opened at need.
    Channel* world_channel = nullptr;
    Timeline* timeline = nullptr;  // null: none
  };

  static Result<std::unique_ptr<Operations>> make(const Options& options);
  // Ends the worker. Operations that are not done end with ABORTED. Channels stay with
  // Communication.
  ~Operations();
  Operations(const Operations&) = delete;
  Operations& operator=(const Operations&) = delete;

  // [any] Starts operations, all or none. Tensors (not their descriptions) must stay valid until it
  // is done; after an abort the transport may still touch them, so their owner keeps them until the
  // transport is gone. INVALID_ARGUMENT: a name that is pending in the same group, tensors not
  // contiguous or not on the CPU, splits that do not fit, a root outside the group, ...;
  // UNIMPLEMENTED: a pattern or type that the transport lacks.
  Result<std::vector<std::shared_ptr<Operation>>> submit(
      std::span<const penstock_operation_declaration> declarations);
  Result<std::shared_ptr<Operation>> submit(const penstock_operation_declaration& declaration);

  // [control] Runs `task` on the worker of every rank of `group` at the
  // same place in the agreed order, and waits for it. For collective set-up on the communication
  // thread, above all opening channels: two ranks that open two channels each in another order
  // would wait for each other for ever. `serial` is unique in the run and equal on all members.
  // It owns what it refers to: after an abort the wait ends before a task that is stuck.
  // Errors: those of task, MISMATCH of signatures, the reason of an abort. Not from a task.
  Status run_agreed(std::string_view name, std::string_view signature, const Group& group,
                    const std::function<Status(uint64_t serial)>& task);

  // [any] Others have asked for a sum while this rank has joined: it adds zeros.
  void add_zeros(WhileJoined::Sum sum);

  // [any] The run is given up: waits for tasks end, also for one that is stuck in the transport.
  // Operations end with their messages, which may still be written to until then.
  void fail(const Status& reason);

 private:
  explicit Operations(std::shared_ptr<OperationWorker> worker);
  // Shared: answers of Control may come after this object is gone.
  std::shared_ptr<OperationWorker> worker_;
};

}  // namespace penstock
