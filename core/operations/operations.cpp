#include "core/operations/operations.hpp"

#include "core/operations/worker.hpp"
#include "core/tensor/dtype.hpp"

#include <chrono>

namespace penstock {
namespace {

// Who waits for longer is in no hurry: the others may know that it waits.
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

Result<std::shared_ptr<Operation>> Operations::submit(
    const penstock_operation_declaration& declaration) {
  PENSTOCK_ASSIGN(OperationOrder order, read_order(declaration, worker_->options().world));
  PENSTOCK_TRY(worker_->check_transport(order));
  std::string signature = signature_of(order);
  PENSTOCK_ASSIGN(std::shared_ptr<NamedOperation> operation,
                  worker_->submit(std::move(order), std::move(signature), {}));
  return std::shared_ptr<Operation>(std::move(operation));
}

Status Operations::run_agreed(std::string_view name, std::string_view signature, const Group& group,
                              const std::function<Status(uint64_t serial)>& task) {
  OperationOrder order;
  // A name that no operation of an application is likely to have.
  order.name = fmt::format("penstock set-up: {}", name);
  order.group = group;
  PENSTOCK_ASSIGN(const std::shared_ptr<NamedOperation> operation,
                  worker_->submit(std::move(order), std::string(signature), task));
  return operation->wait();
}

// ---- One operation ----

bool NamedOperation::done() const {
  const std::lock_guard lock(mutex_);
  return done_;
}

Status NamedOperation::wait() {
  std::unique_lock lock(mutex_);
  if (!ended_.wait_for(lock, kBlockedAfter, [&] { return done_; })) {
    lock.unlock();
    control_->blocked(request_);
    lock.lock();
    ended_.wait(lock, [&] { return done_; });
  }
  return status_;
}

void NamedOperation::complete(Status status) {
  const std::lock_guard lock(mutex_);
  if (done_) return;
  done_ = true;
  status_ = std::move(status);
  ended_.notify_all();
}

Result<Operation::Output> NamedOperation::result() const {
  const std::lock_guard lock(mutex_);
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
  // An output of the wrong size is the caller's mistake alone: the others still get their data.
  output_fits_ = target_ == nullptr || order_.output_numel == layout_.receive_numel;
  if (target_ == nullptr || !output_fits_) {
    PENSTOCK_TRY(allocate(owned_output_, layout_.receive_numel));
    target_ = owned_output_.data();
  }
  const void* send = order_.input;
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
  fill_message(send);
  return {};
}

void NamedOperation::fill_message(const void* send) {
  exec_ = {sizeof exec_, nullptr, nullptr, 0, PENSTOCK_DEVICE_CPU, 0};
  step_.struct_size = sizeof step_;
  step_.grad_scale = 1;
  step_.rank = order_.group.rank();
  step_.world = order_.group.size();
  message.struct_size = sizeof message;
  message.pattern = order_.pattern;
  message.reduction = order_.reduction;
  // Bytes 0 and 1: and is their minimum, or their maximum.
  message.dtype = order_.dtype == PENSTOCK_BOOL ? uint32_t{PENSTOCK_UINT8} : order_.dtype;
  message.send = send;
  message.receive = target_;
  message.count = layout_.send_numel;
  message.peer = order_.root_index;
  message.flags = layout_.receive_counts.empty() ? 0 : PENSTOCK_MESSAGE_EXACT_COUNTS;
  message.send_counts = layout_.send_counts.empty() ? nullptr : layout_.send_counts.data();
  message.receive_counts = layout_.receive_counts.empty() ? nullptr : layout_.receive_counts.data();
  message.receive_offsets =
      layout_.receive_offsets.empty() ? nullptr : layout_.receive_offsets.data();
  message.exec = &exec_;
  message.step = &step_;
}

// What every pattern means for one rank.
void NamedOperation::copy_to_itself() {
  const uint64_t bytes = layout_.receive_numel * dtype_bytes(order_.dtype);
  if (bytes > 0 && message.send != target_) std::memcpy(target_, message.send, bytes);
}

Status NamedOperation::finish() {
  const double divisor = order_.average ? order_.group.size() : 1;
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

void NamedOperation::finished(Status status) {
  const std::shared_ptr<OperationWorker> worker = std::move(worker_);
  worker->exchanged(std::move(self_), std::move(status));
}

}  // namespace penstock
