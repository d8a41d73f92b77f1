#include "core/operations/worker.hpp"

#include "core/base/clock.hpp"
#include "core/comm/channel.hpp"
#include "core/tensor/dtype.hpp"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/lsan_interface.h>
#endif

namespace penstock {
namespace {

// Tags are below 2^20 (penstock/collective.h); as many operations never wait at once.
constexpr uint64_t kTags = uint64_t{1} << 20;

// An exchange that ended in an error may leave a transport behind that still writes into its
// buffers: they are never freed. The run is over at that point.
void abandon(std::shared_ptr<NamedOperation> operation) {
  auto* leaked = new std::shared_ptr<NamedOperation>(std::move(operation));
#if defined(__SANITIZE_ADDRESS__)
  __lsan_ignore_object(leaked);
#else
  (void)leaked;
#endif
}

}  // namespace

Status OperationWorker::start() {
  if (options_.table != nullptr) {
    traits_.struct_size = sizeof traits_;
    PENSTOCK_TRY(from_c(options_.table->describe(options_.instance, &traits_)));
  }
  if (options_.world_channel != nullptr) {
    Opened& group = groups_[options_.world_channel->members.ranks()];
    group.channel = options_.world_channel;
    // The channel may have carried messages of the set-up, the same on all ranks.
    PENSTOCK_TRY(options_.communication->run([&] {
      group.next_sequence = group.channel->next_sequence;
      return Status();
    }));
  }
  thread_ = std::thread([this] { loop(); });
  return {};
}

void OperationWorker::stop() {
  std::map<Key, std::shared_ptr<NamedOperation>> pending;
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
    pending.swap(pending_);
  }
  wake_.notify_all();
  thread_.join();
  for (const auto& [key, operation] : pending) {
    operation->complete(aborted("operation '{}': the runtime is closing", key.first));
  }
  // A round trip through the communication thread: it has released the last ticket.
  if (last_exchanged_ != nullptr) (void)options_.communication->run([] { return Status(); });
  last_exchanged_.reset();
}

void OperationWorker::fail(const Status& reason) {
  const std::lock_guard lock(mutex_);
  for (const auto& [key, operation] : pending_)
    if (operation->task_) operation->complete(reason.with_context(key.first));
}

Status OperationWorker::check_transport(const OperationOrder& order) const {
  if (order.group.size() == 1 || order.pattern == PENSTOCK_BARRIER) return {};
  if ((traits_.patterns & PENSTOCK_PATTERN_BIT(order.pattern)) == 0) {
    return unimplemented(
        "operation '{}': the transport has no {}; choose another with collective in [scheme]",
        order.name, pattern_name(order.pattern));
  }
  const uint32_t dtype = order.dtype == PENSTOCK_BOOL ? uint32_t{PENSTOCK_UINT8} : order.dtype;
  if (order.reduces() && (traits_.dtypes & PENSTOCK_DTYPE_BIT(dtype)) == 0) {
    return unimplemented("operation '{}': the transport does not reduce {}; convert it to float32",
                         order.name, dtype_name(order.dtype));
  }
  return {};
}

Result<std::shared_ptr<NamedOperation>> OperationWorker::submit(OperationOrder order,
                                                                std::string signature,
                                                                OperationTask task) {
  auto operation = std::make_shared<NamedOperation>(std::move(order));
  operation->task_ = std::move(task);
  operation->asked_us_ = now_us();
  const OperationOrder& kept = operation->order_;
  {
    const std::lock_guard lock(mutex_);
    if (!pending_.try_emplace(key_of(kept), operation).second) {
      return invalid_argument(
          "operation '{}' is still pending on this rank; wait for it or use another name",
          kept.name);
    }
  }
  options_.control->note(fmt::format("asked for operation '{}'", kept.name));
  operation->control_ = options_.control;
  operation->request_ = options_.control->request(
      {kept.name, kept.group.ranks(), std::move(signature), detail_of(kept)},
      [self = shared_from_this(), operation](Status status, OperationResponse response) {
        self->answered(operation, std::move(status), std::move(response));
      });
  return operation;
}

void OperationWorker::answered(std::shared_ptr<NamedOperation> operation, Status status,
                               OperationResponse response) {
  post({std::move(operation), true, std::move(status), std::move(response)});
}

void OperationWorker::exchanged(std::shared_ptr<NamedOperation> operation, Status status) {
  post({std::move(operation), false, std::move(status), {}});
}

void OperationWorker::post(Event event) {
  {
    const std::lock_guard lock(mutex_);
    if (!stopped_) {
      events_.push_back(std::move(event));
      wake_.notify_one();
      return;
    }
  }
  // Nobody handles it any more, and it has been completed.
  if (!event.is_answer) abandon(std::move(event.operation));
}

void OperationWorker::loop() {
  while (true) {
    std::deque<Event> events;
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [&] { return stopped_ || !events_.empty(); });
      events.swap(events_);
      if (stopped_) {
        lock.unlock();
        for (Event& event : events) {
          if (!event.is_answer) abandon(std::move(event.operation));
        }
        return;
      }
    }
    for (Event& event : events) handle(event);
  }
}

void OperationWorker::handle(Event& event) {
  NamedOperation& operation = *event.operation;
  Status status = std::move(event.status);
  if (event.is_answer) {
    if (status.ok() && carry_out(operation, event.response, status)) return;
    return end(operation, std::move(status));
  }
  if (status.ok()) {
    status = operation.finish();
    last_exchanged_ = std::move(event.operation);
  } else {
    status = status.with_context(fmt::format("operation '{}'", operation.order_.name));
    abandon(event.operation);
  }
  end(operation, std::move(status));
}

void OperationWorker::end(NamedOperation& operation, Status status) {
  {
    // Before it is complete: who has waited may use the name again.
    const std::lock_guard lock(mutex_);
    if (const auto found = pending_.find(key_of(operation.order_));
        found != pending_.end() && found->second.get() == &operation) {
      pending_.erase(found);
    }
  }
  Timeline* timeline = options_.timeline;
  if (timeline != nullptr && timeline->enabled() && !operation.task_)
    timeline->add_operation(pattern_name(operation.order_.pattern), operation.order_.name,
                            operation.asked_us_, operation.sent_us_, now_us(),
                            operation.order_.numel * dtype_bytes(operation.order_.dtype));
  operation.complete(std::move(status));
}

bool OperationWorker::carry_out(NamedOperation& operation, const OperationResponse& response,
                                Status& status) {
  const OperationOrder& order = operation.order_;
  if (operation.task_) {
    status = operation.task_(response.serial);
    return false;
  }
  // That all have asked for it is all that a barrier is.
  if (order.pattern == PENSTOCK_BARRIER) return false;
  status = operation.prepare(response.details);
  if (status.ok() && order.group.size() == 1) {
    operation.copy_to_itself();
    status = operation.finish();
    return false;
  }
  if (status.ok()) {
    Result<Opened*> group = open_group(order.group, response.serial);
    status = group.status();
    if (group.ok()) {
      // Counted here, not by Control: barriers and tasks send nothing. Responses come in one order
      // on all ranks.
      operation.sequence = (*group)->next_sequence++;
      operation.message.id = operation.sequence;
      operation.message.tag = operation.sequence % kTags;
      operation.limit_us = options_.limit_us;
      operation.sent_us_ = now_us();
      operation.worker_ = shared_from_this();
      operation.self_ = operation.shared_from_this();
      options_.communication->submit((*group)->channel, &operation);
      return true;
    }
  }
  // The others will send, and wait for this rank in vain.
  options_.control->abort(
      status.with_context(fmt::format("operation '{}' cannot be carried out", order.name)));
  return false;
}

Result<OperationWorker::Opened*> OperationWorker::open_group(const Group& group, uint64_t serial) {
  Opened& opened = groups_[group.ranks()];
  if (opened.channel != nullptr) return &opened;
  Communication::OpenRequest request{};
  request.table = options_.table;
  request.instance = options_.instance;
  request.group = group;
  request.group_id = group_id(serial);
  request.store = options_.control->store();
  request.timeout_us = options_.open_timeout_us;
  request.name = group.level() == PENSTOCK_LEVEL_WORLD
                     ? "operations"
                     : fmt::format("operations of ranks {}", fmt::join(group.ranks(), ", "));
  PENSTOCK_ASSIGN(opened.channel, options_.communication->open_channel(request));
  return &opened;
}

}  // namespace penstock
