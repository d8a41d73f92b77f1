#include "core/operations/operations.hpp"

#include "core/operations/scale.hpp"
#include "core/operations/worker.hpp"
#include "core/tensor/dtype.hpp"

#include <penstock/mean.h>

#include <chrono>

namespace penstock {
namespace {

// After this time a wait is not urgent any more, and the other ranks may learn that this rank
// waits.
constexpr std::chrono::milliseconds kBlockedAfter{300};

}  // namespace

Result<std::unique_ptr<Operations>> Operations::make(const Options& options) {
  if (options.control == nullptr) return invalid_argument("operations: control is missing");
  if (options.control->size() > 1 &&
      (options.communication == nullptr || options.table == nullptr ||
       options.world.size() != options.control->size())) {
    return invalid_argument(
        "operations: {} ranks need a communication thread, a transport and its world",
        options.control->size());
  }
  auto worker = std::make_shared<OperationWorker>(options);
  PENSTOCK_TRY(worker->start());
  return std::unique_ptr<Operations>(new Operations(std::move(worker)));
}

Operations::Operations(std::shared_ptr<OperationWorker> worker) : worker_(std::move(worker)) {}

Operations::~Operations() {
  worker_->stop();
}

void Operations::fail(const Status& reason) {
  worker_->fail(reason);
}

Result<std::vector<std::shared_ptr<Operation>>> Operations::submit(
    std::span<const penstock_operation_declaration> declarations) {
  std::vector<OperationWorker::Wish> wishes;
  wishes.reserve(declarations.size());
  for (const penstock_operation_declaration& declaration : declarations) {
    PENSTOCK_ASSIGN(OperationOrder order, read_order(declaration, worker_->options().world));
    PENSTOCK_TRY(worker_->check_transport(order));
    std::string signature = signature_of(order);
    order.reduction = worker_->reduction_of(order);
    wishes.push_back({std::move(order), std::move(signature), {}});
  }
  PENSTOCK_ASSIGN(const auto operations, worker_->submit(std::move(wishes)));
  return std::vector<std::shared_ptr<Operation>>(operations.begin(), operations.end());
}

Result<std::shared_ptr<Operation>> Operations::submit(
    const penstock_operation_declaration& declaration) {
  PENSTOCK_ASSIGN(auto operations, submit(std::span(&declaration, 1)));
  return std::move(operations.front());
}

void Operations::add_zeros(WhileJoined::Sum sum) {
  worker_->add_zeros(std::move(sum));
}

Status Operations::run_agreed(std::string_view name, std::string_view signature, const Group& group,
                              const std::function<Status(uint64_t serial)>& task) {
  OperationOrder order;
  // No operation of an application is likely to have this name.
  order.name = fmt::format("penstock set-up: {}", name);
  order.group = group;
  std::vector<OperationWorker::Wish> wish;
  wish.push_back({std::move(order), std::string(signature), task});
  PENSTOCK_ASSIGN(const auto operations, worker_->submit(std::move(wish)));
  return operations.front()->wait();
}

// ---- One operation ----

bool NamedOperation::done() const {
  const Lock lock(mutex_);
  return done_;
}

Status NamedOperation::wait() {
  Lock lock(mutex_);
  const auto is_done = [this]() PENSTOCK_REQUIRES(mutex_) { return done_; };
  if (!ended_.wait_for(mutex_, kBlockedAfter, is_done)) {
    lock.unlock();
    control_->blocked(request_);
    lock.lock();
    ended_.wait(mutex_, is_done);
  }
  return status_;
}

void NamedOperation::complete(Status status) {
  const Lock lock(mutex_);
  if (done_) return;
  done_ = true;
  status_ = std::move(status);
  ended_.notify_all();
}

Result<Operation::Output> NamedOperation::result() const {
  const Lock lock(mutex_);
  if (!done_)
    return failed_precondition("operation '{}' is not done; wait for it first", order_.name);
  if (!status_.ok()) return status_;
  return Output{target_, layout_.receive_numel * dtype_bytes(order_.dtype), layout_.rows};
}

Status NamedOperation::allocate(Buffer& buffer, uint64_t numel) const {
  const uint64_t bytes = numel * dtype_bytes(order_.dtype);
  try {
    buffer = Buffer(std::max<uint64_t>(bytes, 1));
  } catch (const std::bad_alloc&) {
    return out_of_memory("operation '{}': no memory for {} bytes", order_.name, bytes);
  }
  return {};
}

Status NamedOperation::prepare(const std::vector<std::string>& details) {
  PENSTOCK_ASSIGN(layout_, lay_out(order_, details));
  target_ = order_.output;
  // A wrong size of the output is an error only of the caller. The other ranks still get their
  // data.
  output_fits_ = target_ == nullptr || order_.output_numel == layout_.receive_numel;
  if (target_ == nullptr || !output_fits_) {
    PENSTOCK_TRY(allocate(owned_output_, layout_.receive_numel));
    target_ = owned_output_.data();
  }
  if (order_.is_zeros && order_.numel != 0)
    std::memset(target_, 0, order_.numel * dtype_bytes(order_.dtype));
  const void* send = order_.is_zeros ? target_ : order_.input;
  if (order_.prescale != 1) {
    void* scaled = target_;
    if (order_.pattern != PENSTOCK_ALL_REDUCE) {
      PENSTOCK_TRY(allocate(scaled_input_, order_.numel));
      scaled = scaled_input_.data();
    }
    scale_elements(order_.dtype, order_.input, scaled, order_.numel, order_.prescale, 1);
    send = scaled;
  }
  if (order_.pattern == PENSTOCK_BROADCAST) {
    if (order_.group.rank() == order_.root_index && target_ != order_.input && order_.numel > 0) {
      std::memcpy(target_, order_.input, order_.numel * dtype_bytes(order_.dtype));
    }
    send = target_;
  }
  send_ = send;
  return {};
}

// With one rank every pattern is a copy.
void NamedOperation::copy_to_itself() {
  const uint64_t bytes = layout_.receive_numel * dtype_bytes(order_.dtype);
  if (bytes > 0 && send_ != target_) std::memcpy(target_, send_, bytes);
}

Status NamedOperation::finish() {
  const bool is_divided = order_.reduction == PENSTOCK_REDUCE_MEAN;
  const double divisor = order_.average && !is_divided ? order_.group.size() : 1;
  if (order_.reduces() && (order_.postscale != 1 || divisor != 1)) {
    scale_elements(order_.dtype, target_, target_, layout_.receive_numel, order_.postscale,
                   divisor);
  }
  if (output_fits_) return {};
  return invalid_argument(
      "operation '{}': the output has {} elements, {} were received; give no output to have it "
      "made",
      order_.name, order_.output_numel, layout_.receive_numel);
}

}  // namespace penstock
