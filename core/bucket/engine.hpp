// The engine thread runs the jobs of all sets: first jobs under way, then new jobs in the order of
// their plan. It never waits for the network or a device, because a job parks if it must wait. The
// last message that arrives resumes its job. A device gives no such signal, so the engine polls the
// device of a parked job: now and then while other jobs run, and before each sleep, which is then
// short.
#pragma once

#include "core/base/mutex.hpp"
#include "core/base/task.hpp"
#include "core/bucket/bucket.hpp"

#include <functional>
#include <thread>
#include <vector>

namespace penstock {

class Engine final : public Communication::Listener {
 public:
  Engine();
  ~Engine() override;  // all jobs must have ended
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  void start(BucketRun& bucket);  // [any] a new job
  // [any] Queues a parked job, which runs after the next announce at the latest. Many messages
  // arrive in one poll, and one announce wakes the engine for all these messages.
  void resume(BucketRun& bucket);
  void announce() { wake_.notify_one(); }  // [any]
  // [engine] Parks a job until its stage reports that the device has finished.
  void park_on_device(BucketRun& bucket);
  void polled() override { announce(); }
  // [control] Runs `task` on the engine thread between two jobs, and waits for it.
  Status run(const std::function<Status()>& task);
  // [control] False if the engine is in a call that does not end within this time.
  bool answers_within(uint64_t limit_us);

 private:
  struct Entry {
    uint64_t rank;  // less is earlier: parked jobs before new jobs, then the plan's order
    uint64_t ticket;
    BucketRun* bucket;
    bool fresh;
    bool operator<(const Entry& other) const {  // for a heap with the earliest on top
      return rank != other.rank ? rank > other.rank : ticket > other.ticket;
    }
  };
  std::shared_ptr<Task> hand_over(std::function<Status()> body);
  // `begins`: the job has not finished any stage yet. Jobs that have finished a stage run first.
  void enqueue(BucketRun& bucket, bool fresh, bool begins);
  void loop();
  void look_at_devices();
  // Whether the application waits for a job that is parked on a device.
  bool application_waits() const;
  void wait_for_work() PENSTOCK_REQUIRES(mutex_);
  void advance(const Entry& entry);
  void announce_messages();

  Mutex mutex_;
  Condition wake_;
  std::vector<Entry> heap_ PENSTOCK_GUARDED_BY(mutex_);
  std::vector<std::shared_ptr<Task>> tasks_ PENSTOCK_GUARDED_BY(mutex_);
  uint64_t next_ticket_ PENSTOCK_GUARDED_BY(mutex_) = 0;
  Communication* unannounced_ = nullptr;  // [engine] its thread is not notified yet of new messages
  // [engine] The jobs that are parked on devices, and the time of the next poll.
  std::vector<BucketRun*> on_devices_;
  uint64_t n_looks_ = 0, next_look_us_ = 0, between_looks_us_ = 0;
  uint64_t hurry_until_us_ = 0;
  bool stopping_ PENSTOCK_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace penstock
