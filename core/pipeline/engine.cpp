#include "core/pipeline/engine.hpp"

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

Status Engine::run(const std::function<Status()>& task) {
  Status status;
  std::mutex done_mutex;
  std::condition_variable done_signal;
  bool done = false;
  const std::function<void()> wrapped = [&] {
    status = task();
    std::lock_guard lock(done_mutex);
    done = true;
    done_signal.notify_one();
  };
  {
    std::lock_guard lock(mutex_);
    tasks_.push_back(&wrapped);
  }
  wake_.notify_one();
  std::unique_lock lock(done_mutex);
  done_signal.wait(lock, [&] { return done; });
  return status;
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
      const auto* task = tasks_.back();
      tasks_.pop_back();
      lock.unlock();
      (*task)();
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
  if (ended) bucket.context.bucket_ended(bucket, bucket.job.status());
}

}  // namespace penstock
