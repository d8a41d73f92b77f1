// Named operations: collectives outside any set, matched across ranks by name (runtime.h,
// penstock_operation_*).
//
// submit validates the operation and requests it from Control. When every rank of the group has
// requested it, the worker thread opens the group's channel if it is new, builds one message with
// exact counts and hands it to the communication thread. When the message has ended, the worker
// scales the result and finishes the operation. All ranks receive the responses in one order, so
// the worker opens channels and numbers messages in an agreed order.
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

// One operation under way. Shared between the waiting callers and the threads that execute it.
class Operation {
 public:
  virtual ~Operation() = default;

  // [any] True when wait would return at once.
  virtual bool done() const = 0;
  // [any] Blocks until the end. MISMATCH on every rank if the ranks disagree. May be called again
  // and returns an equal answer.
  virtual Status wait() = 0;

  struct Output {
    const void* data = nullptr;
    uint64_t bytes = 0;
    // First-dimension rows. ALL_GATHER and ALL_TO_ALL: received from each rank of the group;
    // REDUCE_SCATTER: received by each rank; empty for other patterns.
    std::span<const uint64_t> rows;
  };
  // [any] After a successful wait; valid as long as the operation. If the caller gave an output
  // tensor, data points to it. FAILED_PRECONDITION before the end, the operation's own error after
  // a failure.
  virtual Result<Output> result() const = 0;
};

class OperationWorker;

class Operations {
 public:
  struct Options {
    // All pointers are borrowed; their objects must outlive this object.
    Control* control = nullptr;
    Communication* communication = nullptr;  // unused in a world of one rank
    const penstock_collective* table = nullptr;
    void* instance = nullptr;
    Group world;
    uint64_t open_timeout_us = 60'000'000;
    uint64_t limit_us = 0;  // limit of each message, from submission to the transport; 0: none
    // For operations of the whole world; only this object may use it from now on. Null: opened when
    // needed.
    Channel* world_channel = nullptr;
    Timeline* timeline = nullptr;  // null: none
  };

  static Result<std::unique_ptr<Operations>> make(const Options& options);
  // Ends the worker. Unfinished operations end with ABORTED. Channels stay with Communication.
  ~Operations();
  Operations(const Operations&) = delete;
  Operations& operator=(const Operations&) = delete;

  // [any] Starts all operations or none. Tensors (not their descriptions) must stay valid until the
  // operation is done. After an abort the transport may still access them, so their owner must keep
  // them until the transport is closed. INVALID_ARGUMENT: a name that is pending in the group
  // already, tensors that are not contiguous or not on the CPU, splits that do not fit, a root
  // outside the group, ...; UNIMPLEMENTED: a pattern or type that the transport lacks.
  Result<std::vector<std::shared_ptr<Operation>>> submit(
      std::span<const penstock_operation_declaration> declarations);
  Result<std::shared_ptr<Operation>> submit(const penstock_operation_declaration& declaration);

  // [control] Runs `task` on the worker of every rank of `group`, at one place in the agreed order,
  // and waits for it. For collective set-up on the communication thread, mainly opening channels:
  // two ranks that opened two channels in different orders would deadlock. `serial` is unique in
  // the run and equal on all members. The task must own everything it refers to, because after an
  // abort the wait ends even if the task hangs. Errors: errors of the task, MISMATCH of signatures,
  // the reason of an abort. Must not be called from a task.
  Status run_agreed(std::string_view name, std::string_view signature, const Group& group,
                    const std::function<Status(uint64_t serial)>& task);

  // [any] Other ranks have requested a sum after this rank joined: adds zeros to it.
  void add_zeros(WhileJoined::Sum sum);

  // [any] The run is aborted: waits for tasks end, even if a task hangs in the transport. An
  // operation ends with its message, which may still be written to until then.
  void fail(const Status& reason);

 private:
  explicit Operations(std::shared_ptr<OperationWorker> worker);
  // Shared, because answers of Control may arrive after this object is destroyed.
  std::shared_ptr<OperationWorker> worker_;
};

}  // namespace penstock
