#include "core/bucket/engine.hpp"

#include <algorithm>

namespace penstock {

Engine::Engine() : thread_([this] { loop(); }) {}

Engine::~Engine() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

void Engine::start(BucketRun& bucket) {
  enqueue(bucket, true);
  announce();
}
void Engine::resume(BucketRun& bucket) {
  enqueue(bucket, false);
}

void Engine::enqueue(BucketRun& bucket, bool fresh) {
  {
    std::lock_guard lock(mutex_);
    const uint64_t rank = (fresh ? uint64_t{1} << 32 : 0) | bucket.number;
    heap_.push_back({rank, next_ticket_++, &bucket, fresh});
    std::push_heap(heap_.begin(), heap_.end());
  }
}

std::shared_ptr<Task> Engine::hand_over(std::function<Status()> body) {
  auto task = std::make_shared<Task>(std::move(body));
  {
    std::lock_guard lock(mutex_);
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
  std::unique_lock lock(mutex_);
  for (;;) {
    if (heap_.empty() && unannounced_ != nullptr) {
      lock.unlock();
      announce_messages();
      lock.lock();
    }
    wake_.wait(lock, [&] { return stopping_ || !heap_.empty() || !tasks_.empty(); });
    if (!tasks_.empty()) {
      const std::shared_ptr<Task> task = std::move(tasks_.back());
      tasks_.pop_back();
      lock.unlock();
      task->carry_out();
      lock.lock();
      continue;
    }
    if (heap_.empty()) return;  // stopping
    std::pop_heap(heap_.begin(), heap_.end());
    const Entry entry = heap_.back();
    heap_.pop_back();
    lock.unlock();
    advance(entry);
    lock.lock();
  }
}

// Messages of small buckets leave together: a wake-up costs more than such a bucket's whole job.
// None waits for more than small jobs.
void Engine::announce_messages() {
  if (unannounced_ != nullptr) unannounced_->announce();
  unannounced_ = nullptr;
}

void Engine::advance(const Entry& entry) {
  BucketRun& bucket = *entry.bucket;
  const bool small = bucket.is_small();
  Communication* communication = bucket.context.communication;
  if (!small) announce_messages();
  if (entry.fresh) {
    const uint64_t before = bucket.frame.allocations();
    bucket.job = Job();  // gives the frame of the last step free
    bucket.job = run_bucket(bucket);
    allocations_ += bucket.frame.allocations() - before;
  }
  // At its end the set may go: neither it nor the bucket is touched any more.
  const bool ended = bucket.job.resume();
  unannounced_ = communication;
  if (!small) announce_messages();
  if (ended) bucket.context.listener->bucket_ended(bucket, bucket.job.status());
}

}  // namespace penstock
