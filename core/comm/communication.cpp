#include "core/comm/communication.hpp"

#include "core/base/clock.hpp"
#include "core/comm/channel.hpp"
#include "core/comm/communication_slice.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

namespace penstock {
namespace {

// Chooses the sleep after a number of polls without an ended message. The first polls only yield,
// because small messages are quick.
constexpr unsigned kYieldingPolls = 40;
constexpr unsigned kYieldingPollsWhileWaiting = 200;
constexpr size_t kUsualMessages = 1024;
constexpr std::chrono::microseconds kShortSleep{20};
constexpr std::chrono::microseconds kLongSleep{100};
// If no thread waits, fewer and longer runs take less time from the compute thread on this core.
// The data that a transport keeps in flight, about 1 MB per peer, must last for this sleep.
constexpr std::chrono::microseconds kLongSleepDuringCompute{500};

}  // namespace

Communication::Communication(CallSlot* calls) : calls_(calls) {
  // The number of messages at once differs from step to step. Most models need fewer than this.
  queue_.reserve(kUsualMessages);
  taken_.reserve(kUsualMessages);
  in_flight_.reserve(kUsualMessages);
  thread_ = std::thread([this] { loop(); });
}

Communication::~Communication() {
  {
    const Lock lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

std::shared_ptr<Task> Communication::hand_over(std::function<Status()> body) {
  auto task = std::make_shared<Task>(std::move(body));
  {
    const Lock lock(mutex_);
    if (stopping_) return nullptr;
    tasks_.push_back(task);
  }
  wake_.notify_one();
  return task;
}

Status Communication::run(const std::function<Status()>& task) {
  const std::shared_ptr<Task> handed = hand_over(task);
  if (handed == nullptr) return Status(Code::aborted, "the runtime is closing");
  return handed->wait();
}

Status Communication::run_within(uint64_t limit_us, std::function<Status()> task,
                                 const Waits& waits) {
  const std::shared_ptr<Task> handed = hand_over(std::move(task));
  if (handed == nullptr) return Status(Code::aborted, "the runtime is closing");
  Status status;
  for (uint64_t waited_us = 0; waited_us < limit_us;) {
    const uint64_t part_us =
        waits.notify ? std::min(waits.every_us, limit_us - waited_us) : limit_us;
    if (handed->wait_for(part_us, status)) return status;
    waited_us += part_us;
    if (waits.notify) waits.notify(waited_us);
  }
  return deadline_exceeded("the transport has not come back within {:.1f} s",
                           double(limit_us) * 1e-6);
}

void Communication::submit(Channel* channel, Transfer* exchange) {
  submit_quietly(channel, exchange);
  announce();
}

void Communication::submit_quietly(Channel* channel, Transfer* exchange) {
  const Lock lock(mutex_);
  queue_.push_back({channel, exchange, exchange->sequence});
}

void Communication::set_listener(Listener* listener) {
  (void)run([&] {
    listener_ = listener;
    return Status();
  });
}

void Communication::skip(Channel* channel, uint64_t sequence) {
  {
    const Lock lock(mutex_);
    queue_.push_back({channel, nullptr, sequence});
  }
  wake_.notify_one();
}

Status Communication::transfer_and_wait(Channel* channel, const penstock_message& message) {
  struct Waiter final : Transfer {
    Mutex mutex;
    Condition signal;
    Status status PENSTOCK_GUARDED_BY(mutex);
    bool done PENSTOCK_GUARDED_BY(mutex) = false;
    void finished(Status ended) override {
      const Lock lock(mutex);
      status = std::move(ended);
      done = true;
      signal.notify_one();
    }
  } waiter;
  waiter.message = message;
  waiter.sequence = Transfer::kAtOnce;
  waiter.limit_us = message.deadline_us;
  submit(channel, &waiter);
  Lock lock(waiter.mutex);
  waiter.signal.wait(waiter.mutex, [&]() PENSTOCK_REQUIRES(waiter.mutex) { return waiter.done; });
  return waiter.status;
}

void Communication::abort(const Status& reason) {
  {
    const Lock lock(mutex_);
    if (aborted_.load()) return;
    abort_reason_ = reason;
    abort_pending_ = true;
    aborted_.store(true);
  }
  wake_.notify_one();
}

bool Communication::aborted() const {
  return aborted_.load();
}

Status Communication::abort_reason() const {
  const Lock lock(mutex_);
  return abort_reason_;
}

Result<Channel*> Communication::open_channel(const OpenRequest& request) {
  auto channel = make_channel(request);
  Status status = run([&] { return open_handle(*channel, request); });
  if (!status.ok()) return status.with_context(fmt::format("opening channel '{}'", request.name));
  Channel* opened = channel.get();
  PENSTOCK_TRY(run([&] {
    channels_.push_back(std::move(channel));
    return Status();
  }));
  return opened;
}

void Communication::close_channel(Channel* channel) {
  (void)run([&] {
    for (size_t i = 0; i < channels_.size(); ++i) {
      if (channels_[i].get() != channel) continue;
      end_held(*channel);
      close_handle(*channel);
      channels_.erase(channels_.begin() + static_cast<std::ptrdiff_t>(i));
      break;
    }
    return Status();
  });
}

// ---- the communication thread ----

void Communication::loop() {
  ask_for_short_slice();
  unsigned idle_polls = 0;
  for (;;) {
    if (!take_work(idle_polls)) break;
    if (!taken_tasks_.empty() || !taken_.empty()) idle_polls = 0;
    // First messages, because a task that closes a channel comes after all messages for the
    // channel.
    for (const Submission& submission : taken_) start(submission);
    taken_.clear();
    for (const auto& task : taken_tasks_) {
      const PluginCall noted(calls_, "the collective", "", "set-up");
      task->carry_out();
    }
    taken_tasks_.clear();
    idle_polls = poll_once() ? 0 : idle_polls + 1;
    if (std::exchange(some_finished_, false) && listener_ != nullptr) listener_->polled();
  }
  fail_everything(Status(Code::aborted, "the runtime was closed"));
  if (listener_ != nullptr) listener_->polled();
  // First composites, then their base transports.
  while (!channels_.empty()) {
    close_handle(*channels_.back());
    channels_.pop_back();
  }
}

// Takes the work that other threads have handed over, and sleeps if there is none. False at the
// end.
bool Communication::take_work(unsigned idle_polls) {
  Lock lock(mutex_);
  if (in_flight_.empty()) {
    wake_.wait(mutex_, [this]() PENSTOCK_REQUIRES(mutex_) {
      return stopping_ || abort_pending_ || !queue_.empty() || !tasks_.empty();
    });
  } else if (queue_.empty() && tasks_.empty() && !stopping_ && !abort_pending_) {
    const bool waiting = this->waiting();
    const unsigned yielding = waiting ? kYieldingPollsWhileWaiting : kYieldingPolls;
    if (idle_polls <= yielding) {
      lock.unlock();
      std::this_thread::yield();
      lock.lock();
    } else if (idle_polls < 4 * yielding) {
      wake_.wait_for(mutex_, kShortSleep);
    } else {
      wake_.wait_for(mutex_, waiting ? kLongSleep : kLongSleepDuringCompute);
    }
  }
  if (abort_pending_) {
    abort_pending_ = false;
    const Status reason = abort_reason_;
    lock.unlock();
    fail_everything(reason);
    lock.lock();
  }
  queue_.swap(taken_);
  tasks_.swap(taken_tasks_);
  return !stopping_ || !taken_tasks_.empty() || !taken_.empty();
}

void Communication::start(const Submission& submission) {
  Channel* channel = submission.channel;
  const bool ordered = (channel->traits.flags & PENSTOCK_COLLECTIVE_ORDERED) != 0;
  // After an abort the earlier turns may never come.
  if (!ordered || submission.sequence == Transfer::kAtOnce || aborted_.load()) {
    if (submission.exchange != nullptr) go(channel, submission.exchange);
    return;
  }
  held_[{channel, submission.sequence}] = submission.exchange;
  for (auto next = held_.find({channel, channel->next_sequence}); next != held_.end();
       next = held_.find({channel, channel->next_sequence})) {
    Transfer* exchange = next->second;
    held_.erase(next);
    ++channel->next_sequence;
    if (exchange != nullptr) go(channel, exchange);
  }
}

void Communication::go(Channel* channel, Transfer* exchange) {
  if (aborted_.load()) return finish(*exchange, abort_reason());
  penstock_ticket* ticket = nullptr;
  const PluginCall call(calls_, "the collective", "", "submit", channel->name);
  Status status = from_c(
      channel->table->submit(channel->instance, channel->handle, &exchange->message, &ticket));
  if (!status.ok()) return finish(*exchange, std::move(status));
  count_sent(*channel, exchange->message);
  in_flight_.push_back({channel, exchange, ticket, now_us()});
}

// A later channel may get the address of this channel, so no held message may stay.
void Communication::end_held(Channel& channel) {
  auto held = held_.lower_bound({&channel, 0});
  while (held != held_.end() && held->first.first == &channel) {
    if (held->second != nullptr)
      finish(
          *held->second,
          Status(Code::aborted, fmt::format("channel '{}' was closed before this message was sent",
                                            channel.name)));
    held = held_.erase(held);
  }
}

void Communication::finish(Transfer& exchange, Status status) {
  some_finished_ = true;
  exchange.finished(std::move(status));
}

bool Communication::poll_once() {
  if (in_flight_.empty()) return false;
  const PluginCall call(calls_, "the collective", "", "progress", in_flight_.front().channel->name);
  const uint64_t now = now_us();
  size_t kept = 0;
  for (const Pending& pending : in_flight_) {
    uint32_t state = PENSTOCK_PENDING;
    Status status = progress(*pending.channel, pending.ticket, state);
    const uint64_t limit = pending.exchange->limit_us;
    if (status.ok() && state == PENSTOCK_PENDING && limit != 0 &&
        now > pending.submitted_us + limit) {
      status = limit_error(*pending.channel, pending.exchange->message, limit);
    }
    if (status.ok() && state == PENSTOCK_PENDING) {
      in_flight_[kept++] = pending;  // the earliest are polled first
      continue;
    }
    if (status.ok()) status = pending.exchange->collect(*pending.channel, pending.ticket);
    pending.channel->table->release(pending.channel->instance, pending.ticket);
    finish(*pending.exchange, std::move(status));
  }
  const bool any = kept != in_flight_.size();
  in_flight_.resize(kept);
  return any;
}

void Communication::fail_everything(const Status& reason) {
  for (const auto& channel : channels_) abort_handle(*channel);
  // A ticket is released only after the abort of its channel. After the abort the transport writes
  // to no buffer.
  for (Pending& pending : in_flight_) {
    pending.channel->table->release(pending.channel->instance, pending.ticket);
    finish(*pending.exchange, reason);
  }
  in_flight_.clear();
  for (auto& [key, exchange] : held_)
    if (exchange != nullptr) finish(*exchange, reason);
  held_.clear();
}

}  // namespace penstock
