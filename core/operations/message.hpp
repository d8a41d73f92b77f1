// What goes to the transport for named operations: one of them, or several small ones that were
// answered together, one behind the other.
#pragma once

#include "core/operations/worker.hpp"

#include <memory>
#include <vector>

namespace penstock {

class OperationMessage final : public Transfer,
                               public std::enable_shared_from_this<OperationMessage> {
 public:
  using NamedOperations = std::vector<std::shared_ptr<NamedOperation>>;

  // Whether an operation may travel behind others of `bytes`, of which this is the first. Only
  // agreed facts count: it comes out alike on all ranks.
  static bool may_join(const OperationOrder& first, uint64_t bytes, const OperationOrder& order);

  // All are prepared, and each but the first may join those before it.
  OperationMessage(std::shared_ptr<OperationWorker> worker, NamedOperations operations)
      : operations_(std::move(operations)), worker_(std::move(worker)) {}

  const NamedOperations& operations() const { return operations_; }
  Status pack();                               // [worker] fills in the message. OUT_OF_MEMORY
  void unpack();                               // [worker] after the exchange
  void hold() { self_ = shared_from_this(); }  // until finished: the transport points into this

 private:
  void finished(Status status) override;  // [comm]

  const NamedOperations operations_;
  std::shared_ptr<OperationWorker> worker_;
  std::shared_ptr<OperationMessage> self_;
  Buffer together_;  // of several
  penstock_exec exec_{};
  penstock_step step_{};
};

}  // namespace penstock
