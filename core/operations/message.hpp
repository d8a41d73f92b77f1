// The message of named operations: it carries one operation, or several small operations that were
// answered together, one behind another.
#pragma once

#include "core/operations/worker.hpp"

#include <memory>
#include <vector>

namespace penstock {

class OperationMessage final : public Transfer,
                               public std::enable_shared_from_this<OperationMessage> {
 public:
  using NamedOperations = std::vector<std::shared_ptr<NamedOperation>>;

  // Whether `order` may be appended to a message of `bytes` that begins with `first`. Depends on
  // agreed facts only, so all ranks decide alike.
  static bool may_join(const OperationOrder& first, uint64_t bytes, const OperationOrder& order);

  // All operations are prepared, and may_join holds for each operation after the first.
  OperationMessage(std::shared_ptr<OperationWorker> worker, NamedOperations operations)
      : operations_(std::move(operations)), worker_(std::move(worker)) {}

  const NamedOperations& operations() const { return operations_; }
  Status pack();  // [worker] fills in the message. OUT_OF_MEMORY
  void unpack();  // [worker] after the exchange
  // Keeps it alive until finished, because the transport points into it.
  void hold() { self_ = shared_from_this(); }

 private:
  void finished(Status status) override;  // [comm]

  const NamedOperations operations_;
  std::shared_ptr<OperationWorker> worker_;
  std::shared_ptr<OperationMessage> self_;
  Buffer together_;  // used for several operations
  penstock_exec exec_{};
  penstock_step step_{};
};

}  // namespace penstock
