#include "core/bucket/engine.hpp"

#include "core/comm/communication_slice.hpp"

#include <algorithm>

namespace penstock {
namespace {

// The time between two polls of devices. The shortest time is the least that a sleep takes. In a
// long wait, as for a backward pass whose copies were all queued at its start, the time grows.
constexpr uint64_t kShortestUs = 50, kLongestUs = 400;
// For this time after a job has parked, while the application waits for it, the engine polls
// without a sleep. Most waits are shorter, and a longer wait need not keep a core busy.
constexpr uint64_t kHurryUs = 200;

}  // namespace

Engine::Engine() : thread_([this] { loop(); }) {}

Engine::~Engine() {
  {
    const Lock lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

void Engine::start(BucketRun& bucket) {
  enqueue(bucket, true, true);
  announce();
}
void Engine::resume(BucketRun& bucket) {
  enqueue(bucket, false, false);
}

void Engine::enqueue(BucketRun& bucket, bool fresh, bool begins) {
  {
    const Lock lock(mutex_);
    const uint64_t rank = (begins ? uint64_t{1} << 32 : 0) | bucket.number;
    heap_.push_back({rank, next_ticket_++, &bucket, fresh});
    std::push_heap(heap_.begin(), heap_.end());
  }
}

std::shared_ptr<Task> Engine::hand_over(std::function<Status()> body) {
  auto task = std::make_shared<Task>(std::move(body));
  {
    const Lock lock(mutex_);
    tasks_.push_back(task);
  }
  wake_.notify_one();
  return task;
}

Status Engine::run(const std::function<Status()>& task) {
  return hand_over(task)->wait();
}

bool Engine::answers_within(uint64_t limit_us) {
  Status status;
  return hand_over([] { return Status(); })->wait_for(limit_us, status);
}

void Engine::loop() {
  ask_for_punctual_sleeps();  // between polls of devices
  Lock lock(mutex_);
  for (;;) {
    if (heap_.empty() && unannounced_ != nullptr) {
      lock.unlock();
      announce_messages();
      lock.lock();
    }
    if (!on_devices_.empty() && now_us() >= next_look_us_) {
      lock.unlock();
      look_at_devices();
      lock.lock();
    }
    wait_for_work();
    if (!tasks_.empty()) {
      const std::shared_ptr<Task> task = std::move(tasks_.back());
      tasks_.pop_back();
      lock.unlock();
      task->carry_out();
      lock.lock();
      continue;
    }
    if (heap_.empty()) {
      if (stopping_) return;
      continue;  // time to poll devices
    }
    std::pop_heap(heap_.begin(), heap_.end());
    const Entry entry = heap_.back();
    heap_.pop_back();
    lock.unlock();
    advance(entry);
    lock.lock();
  }
}

void Engine::wait_for_work() {
  const auto is_there = [this]() PENSTOCK_REQUIRES(mutex_) {
    return stopping_ || !heap_.empty() || !tasks_.empty();
  };
  if (on_devices_.empty()) return wake_.wait(mutex_, is_there);
  const uint64_t now = now_us();
  if (now >= next_look_us_) return;
  if (now < hurry_until_us_ && application_waits()) {
    mutex_.unlock();
    std::this_thread::yield();
    mutex_.lock();
    next_look_us_ = 0;
    return;
  }
  wake_.wait_for(mutex_, std::chrono::microseconds(next_look_us_ - now), is_there);
}

// ---- jobs parked on devices ----

bool Engine::application_waits() const {
  return std::any_of(on_devices_.begin(), on_devices_.end(), [](const BucketRun* bucket) {
    return bucket->context.communication->waiting();
  });
}

void Engine::park_on_device(BucketRun& bucket) {
  on_devices_.push_back(&bucket);
  next_look_us_ = 0;
  hurry_until_us_ = now_us() + kHurryUs;
  between_looks_us_ = kShortestUs;
}

void Engine::look_at_devices() {
  ++n_looks_;
  const auto back = std::partition(on_devices_.begin(), on_devices_.end(), [&](BucketRun* bucket) {
    return !bucket->job.poll(*bucket, n_looks_);
  });
  between_looks_us_ =
      back != on_devices_.end() ? kShortestUs : std::min(2 * between_looks_us_, kLongestUs);
  next_look_us_ = now_us() + between_looks_us_;
  for (auto bucket = back; bucket != on_devices_.end(); ++bucket)
    enqueue(**bucket, false, (*bucket)->job.is_at_start());
  on_devices_.erase(back, on_devices_.end());
}

// Messages of small buckets are announced together, because a wake-up costs more than the whole job
// of such a bucket. No message waits for more than small jobs.
void Engine::announce_messages() {
  if (unannounced_ != nullptr) unannounced_->announce();
  unannounced_ = nullptr;
}

void Engine::advance(const Entry& entry) {
  BucketRun& bucket = *entry.bucket;
  const bool small = bucket.is_small();
  Communication* communication = bucket.context.communication;
  if (!small) announce_messages();
  if (entry.fresh) bucket.job.start();
  // The set may be destroyed in bucket_ended, so nothing touches the set or the bucket after it.
  const bool ended = bucket.job.resume(bucket);
  unannounced_ = communication;
  if (!small) announce_messages();
  if (ended) bucket.context.listener->bucket_ended(bucket, bucket.job.status());
}

}  // namespace penstock
