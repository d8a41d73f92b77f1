#include "core/operations/worker.hpp"

#include "core/base/clock.hpp"
#include "core/base/leak.hpp"
#include "core/comm/channel.hpp"
#include "core/operations/message.hpp"
#include "core/tensor/dtype.hpp"

#include <penstock/mean.h>

#include <fmt/format.h>

namespace penstock {
namespace {

// Tags are below 2^20 (penstock/collective.h), and fewer operations wait at once.
constexpr uint64_t kTags = uint64_t{1} << 20;

}  // namespace

Status OperationWorker::start() {
  if (options_.table != nullptr) {
    traits_.struct_size = sizeof traits_;
    PENSTOCK_TRY(from_c(options_.table->describe(options_.instance, &traits_)));
    mean_dtypes_ = mean_dtypes(*options_.table, options_.instance);
  }
  if (options_.world_channel != nullptr) {
    Opened& group = groups_[options_.world_channel->members.ranks()];
    group.channel = options_.world_channel;
    // The channel may already have carried messages of the set-up, equally many on all ranks.
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
    const Lock lock(mutex_);
    stopped_ = true;
    pending.swap(pending_);
  }
  wake_.notify_all();
  thread_.join();
  for (const auto& [key, operation] : pending) {
    operation->complete(aborted("operation '{}': the runtime is closing", key.first));
  }
  // A round trip through the communication thread. After it the thread has released the last
  // ticket.
  if (last_exchanged_ != nullptr) (void)options_.communication->run([] { return Status(); });
  last_exchanged_.reset();
}

void OperationWorker::fail(const Status& reason) {
  const Lock lock(mutex_);
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

uint32_t OperationWorker::reduction_of(const OperationOrder& order) const {
  const bool is_taken = (mean_dtypes_ & PENSTOCK_DTYPE_BIT(order.dtype)) != 0;
  return order.average && is_taken ? uint32_t{PENSTOCK_REDUCE_MEAN} : order.reduction;
}

Result<std::vector<std::shared_ptr<NamedOperation>>> OperationWorker::submit(
    std::vector<Wish> wishes) {
  std::vector<std::shared_ptr<NamedOperation>> operations;
  operations.reserve(wishes.size());
  for (Wish& wish : wishes) {
    operations.push_back(std::make_shared<NamedOperation>(std::move(wish.order)));
    operations.back()->task_ = std::move(wish.task);
    operations.back()->asked_us_ = now_us();
  }
  PENSTOCK_TRY(take_names(operations));
  for (size_t i = 0; i < operations.size(); ++i) {
    const std::shared_ptr<NamedOperation>& operation = operations[i];
    const OperationOrder& kept = operation->order_;
    options_.control->note(fmt::format("asked for operation '{}'", kept.name));
    operation->control_ = options_.control;
    OperationRequest request{kept.name, kept.group.ranks(), std::move(wishes[i].signature),
                             detail_of(kept)};
    // A joined rank still carries out tasks with other ranks.
    if (!operation->task_) {
      request.zeros = zeros_of(kept);
      request.if_joined = request.zeros.empty() ? OperationRequest::IfJoined::refused
                                                : OperationRequest::IfJoined::adds_zeros;
    }
    operation->request_ = options_.control->request(
        std::move(request),
        [self = shared_from_this(), operation](Status status, OperationResponse response) {
          self->answered(operation, std::move(status), std::move(response));
        });
  }
  return operations;
}

Status OperationWorker::take_names(const std::vector<std::shared_ptr<NamedOperation>>& operations) {
  const Lock lock(mutex_);
  for (auto each = operations.begin(); each != operations.end(); ++each) {
    if (pending_.try_emplace(key_of((*each)->order_), *each).second) continue;
    for (auto taken = operations.begin(); taken != each; ++taken)
      pending_.erase(key_of((*taken)->order_));
    return invalid_argument(
        "operation '{}' is still pending on this rank; wait for it or use another name",
        (*each)->order_.name);
  }
  return {};
}

void OperationWorker::add_zeros(WhileJoined::Sum sum) {
  Result<Group> group = options_.world.subset(sum.ranks);
  Result<OperationOrder> order = group.ok() ? order_of_zeros(sum.name, sum.zeros, *group)
                                            : Result<OperationOrder>(group.status());
  // The other ranks would send and wait for this rank forever.
  if (!order.ok()) return options_.control->abort(order.status());
  auto operation = std::make_shared<NamedOperation>(std::move(*order));
  operation->asked_us_ = now_us();
  answered(std::move(operation), {}, std::move(sum.response));
}

void OperationWorker::answered(std::shared_ptr<NamedOperation> operation, Status status,
                               OperationResponse response) {
  post({std::move(operation), nullptr, std::move(status), std::move(response)});
}

void OperationWorker::exchanged(std::shared_ptr<OperationMessage> message, Status status) {
  post({nullptr, std::move(message), std::move(status), {}});
}

void OperationWorker::post(Event event) {
  {
    const Lock lock(mutex_);
    if (!stopped_) {
      events_.push_back(std::move(event));
      wake_.notify_one();
      return;
    }
  }
  // No thread will handle the message, and its operations are complete.
  if (event.message != nullptr) leak(std::move(event.message));
}

void OperationWorker::loop() {
  while (true) {
    std::deque<Event> events;
    {
      Lock lock(mutex_);
      wake_.wait(mutex_,
                 [this]() PENSTOCK_REQUIRES(mutex_) { return stopped_ || !events_.empty(); });
      events.swap(events_);
      if (stopped_) {
        lock.unlock();
        for (Event& event : events) {
          if (event.message != nullptr) leak(std::move(event.message));
        }
        return;
      }
    }
    for (Event& event : events) handle(event);
  }
}

void OperationWorker::handle(Event& event) {
  if (event.message == nullptr) {
    // An error is not counted among the answers that come together.
    const bool more = event.status.ok() && event.response.left != 0;
    answered_.push_back(std::move(event));
    if (!more) carry_out_answered();
    return;
  }
  if (event.status.ok()) event.message->unpack();
  for (const auto& operation : event.message->operations())
    end(*operation, event.status.ok() ? operation->finish()
                                      : event.status.with_context(
                                            fmt::format("operation '{}'", operation->order_.name)));
  if (event.status.ok())
    last_exchanged_ = std::move(event.message);
  else
    leak(std::move(event.message));
}

void OperationWorker::end(NamedOperation& operation, Status status) {
  {
    // First the name becomes free, because the waiting thread may use it as soon as the operation
    // ends.
    const Lock lock(mutex_);
    if (const auto found = pending_.find(key_of(operation.order_));
        found != pending_.end() && found->second.get() == &operation) {
      pending_.erase(found);
    }
  }
  Timeline* timeline = options_.timeline;
  if (timeline != nullptr && timeline->enabled() && !operation.task_)
    timeline->add_operation(pattern_name(operation.order_.pattern), operation.order_.name,
                            operation.asked_us_, operation.sent_us_, now_us(),
                            operation.order_.bytes());
  operation.complete(std::move(status));
}

// All ranks of a group receive equal answers together, so they form equal messages from them.
void OperationWorker::carry_out_answered() {
  std::vector<Event> answered;
  answered.swap(answered_);
  std::vector<std::shared_ptr<NamedOperation>> together;
  uint64_t serial = 0, bytes = 0;
  const auto send_together = [&] {
    bytes = 0;
    if (!together.empty()) send(std::exchange(together, {}), serial);
  };
  for (Event& event : answered) {
    NamedOperation& operation = *event.operation;
    if (!together.empty() &&
        (!event.status.ok() || operation.task_ ||
         !OperationMessage::may_join(together.front()->order_, bytes, operation.order_)))
      send_together();
    if (!event.status.ok()) {
      end(operation, std::move(event.status));
    } else if (prepare(operation, event.response)) {
      if (together.empty()) serial = event.response.serial;
      bytes += operation.order_.bytes();
      together.push_back(std::move(event.operation));
    }
  }
  send_together();
}

bool OperationWorker::prepare(NamedOperation& operation, const OperationResponse& response) {
  const OperationOrder& order = operation.order_;
  if (operation.task_) {
    end(operation, operation.task_(response.serial));
    return false;
  }
  // A barrier is complete when every rank has asked for it.
  if (order.pattern == PENSTOCK_BARRIER) {
    end(operation, {});
    return false;
  }
  Status status = operation.prepare(response.details);
  if (!status.ok()) {
    // The other ranks would send and wait for this rank forever.
    options_.control->abort(
        status.with_context(fmt::format("operation '{}' cannot be carried out", order.name)));
  } else if (order.group.size() == 1) {
    operation.copy_to_itself();
    status = operation.finish();
  } else {
    return true;
  }
  end(operation, std::move(status));
  return false;
}

void OperationWorker::send(std::vector<std::shared_ptr<NamedOperation>> operations,
                           uint64_t serial) {
  Result<Opened*> group = open_group(operations.front()->order_.group, serial);
  auto message = std::make_shared<OperationMessage>(shared_from_this(), std::move(operations));
  Status status = group.status();
  if (status.ok()) status = message->pack();
  if (!status.ok()) {
    options_.control->abort(status.with_context(fmt::format(
        "operation '{}' cannot be carried out", message->operations().front()->order_.name)));
    for (const auto& operation : message->operations()) end(*operation, status);
    return;
  }
  // The sequence is counted here and not by Control, because barriers and tasks send no message.
  // Responses come in one order on all ranks.
  message->sequence = (*group)->next_sequence++;
  message->message.id = message->sequence;
  message->message.tag = message->sequence % kTags;
  message->limit_us = options_.limit_us;
  for (const auto& operation : message->operations()) operation->sent_us_ = now_us();
  message->hold();
  options_.communication->submit((*group)->channel, message.get());
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
