// Runs the steps of a set, one after the other: gradients become ready, buckets run, the
// application waits. A step is open until the first wait closes it, over when all buckets have
// ended, and torn when a bucket has failed.
#pragma once

#include "core/base/mutex.hpp"
#include "core/bucket/compiled_plan.hpp"
#include "core/set/background_waiter.hpp"
#include "core/set/forward_legs.hpp"
#include "core/set/gate.hpp"
#include "core/set/phase.hpp"
#include "core/set/rates.hpp"
#include "core/set/results.hpp"
#include "core/set/services.hpp"

#include <chrono>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

namespace penstock {

class Step final : public BucketListener {
 public:
  // The arguments must outlive the object.
  Step(SetContext& context, const CompiledPlan::Gradients& gradients, const Group& group,
       const Services& services, Rates& rates)
      : context_(context),
        gradients_(gradients),
        group_(group),
        services_(services),
        rates_(rates) {}

  // [control] Before the first arm: `activity` shows the other ranks how far this rank is.
  void announce_in(std::shared_ptr<Activity::Steps> activity) { activity_ = std::move(activity); }
  // [control] Prepares the step of context.step.index with this compiled plan. The step opens with
  // its first gradient. A bucket starts with its last gradient, or with the last gradient of the
  // step, as `launch` in the plan says.
  void arm(CompiledPlan& compiled);

  // ---- [application] ----
  Status ready(uint64_t index, const penstock_tensor& tensor, void* stream);
  Status absent(uint64_t index, const penstock_tensor& tensor);
  Status set_grad_scale(double grad_scale);
  // Each wait closes the step: gradients that are not ready count as zero. The first two return
  // when the jobs have ended: results lie in the gradients' storage, or their copies are queued
  // (see StepWaits). The third returns when every deferring bucket has ended its part in backward.
  Status wait_until_ended(uint64_t index);
  Status wait_until_all_ended();
  Status wait_until_backward_ended();
  // Waits for this long; returns true at once if the step is torn.
  bool rest(std::chrono::microseconds time);
  // The result of a gradient has arrived. The application has waited for it since `start_us`.
  Status returned(Gradient& gradient, uint64_t start_us);
  // Sets `done` if the gradient's job has ended or the step is torn.
  Status poll(uint64_t index, bool& done);
  // This rank has joined: runs the step with zero gradients, and with the learning rates and scale
  // in `facts`.
  Status begin_with_zeros(std::string_view facts);
  void tell_where();  // [any] notifies ranks that have joined of the step under way
  bool under_way() {
    const Lock lock(mutex_);
    return opened_ || closed_;
  }
  // Sets the function that is notified of results, see penstock_set_on_result.
  Status on_result(void* context, penstock_result_sink sink);

  // ---- the gate (see Gate) ----
  // [control] Holds the buckets of the next step. Calls `ask` once, without a lock, when the first
  // bucket is held.
  void hold(std::function<void()> ask) {
    const Lock lock(mutex_);
    gate_.shut(std::move(ask));
  }
  void release();  // [any] starts the buckets that were held

  // ---- the end ----
  // [any] All waits end with `reason`, unless an earlier failure has ended them.
  void tear(const Status& reason);
  Status failure();  // at first the cause; later FAILED_PRECONDITION, which quotes the cause
  // [application] A device has failed in the middle of the step: gives the run up, because the
  // other ranks wait for messages that will not come. The caller must not hold the lock.
  Status give_up(const Gradient& gradient, const Status& failure);
  void cause_returned() {  // a call has returned the cause of failure
    const Lock lock(mutex_);
    cause_returned_ = true;
  }
  bool runs() {  // some job has not ended
    const Lock lock(mutex_);
    return running_ != 0;
  }
  bool wait_until_idle(uint64_t limit_us);
  void let_go();  // launches waiting legs and skips buckets that never start: every job ends
  void drop();    // forgets the open step; no job may run
  // [control] After the last step: no wait is left.
  void stop() {
    tear(aborted("set '{}' was destroyed", context_.name));
    waiter_.stop();
  }
  // [control] All buckets have ended. The next arm prepares the next step; its index is unchanged
  // if this step does not count.
  StepTimes finish(bool counts);
  uint64_t waited_us() const;  // by the application, in all

  // [engine]
  void bucket_ended(BucketRun& bucket, const Status& status) override;
  void backward_part_ended(BucketRun& bucket) override;
  void forward_part_arrived(BucketRun& bucket) override {
    const Lock lock(mutex_);
    forward_legs_.arrived(bucket);
  }

 private:
  // After this long a wait asks the other ranks which rank is missing.
  static constexpr std::chrono::milliseconds kPatience{300};

  Status usable() PENSTOCK_REQUIRES(mutex_);
  void make_ready(Gradient& gradient, void* data) PENSTOCK_REQUIRES(mutex_);
  Status hand_in(uint64_t index, const penstock_tensor& tensor, void* stream, bool is_zero);
  void start(BucketRun& bucket) PENSTOCK_REQUIRES(mutex_);
  void skip_what_never_started() PENSTOCK_REQUIRES(mutex_);
  void all_are_ready() PENSTOCK_REQUIRES(mutex_);
  void notify_begun() const PENSTOCK_REQUIRES(mutex_);

  Status close();
  void wait_in_place(uint64_t attempt);
  void launch_deferred() {
    const Lock lock(mutex_);
    forward_legs_.launch();
  }
  Status wait_until(const std::function<bool()>& finished, Gradient* awaited = nullptr);
  // Unlocks while it waits; `over` is called with the lock held.
  void wait_for_others(const std::function<bool()>& over) PENSTOCK_REQUIRES(mutex_);

  SetContext& context_;
  const CompiledPlan::Gradients& gradients_;
  const Group& group_;
  const Services& services_;
  Rates& rates_;
  std::shared_ptr<Activity::Steps> activity_;
  CompiledPlan* compiled_ = nullptr;

  mutable Mutex mutex_;
  Condition changed_;
  bool closed_ PENSTOCK_GUARDED_BY(mutex_) = false;  // a wait has closed it
  bool opened_ PENSTOCK_GUARDED_BY(mutex_) = false;  // some gradient is ready
  StepCounts left_ PENSTOCK_GUARDED_BY(mutex_);
  uint32_t running_ PENSTOCK_GUARDED_BY(mutex_) = 0;  // jobs started and not ended
  uint32_t waiters_ PENSTOCK_GUARDED_BY(mutex_) = 0;
  Status torn_ PENSTOCK_GUARDED_BY(mutex_);
  bool cause_returned_ PENSTOCK_GUARDED_BY(mutex_) = false;  // a call has returned torn_
  Gate gate_ PENSTOCK_GUARDED_BY(mutex_);
  ForwardLegs forward_legs_ PENSTOCK_GUARDED_BY(mutex_);
  Results results_ PENSTOCK_GUARDED_BY(mutex_);
  BackgroundWaiter waiter_;
  uint64_t first_ready_us_ PENSTOCK_GUARDED_BY(mutex_) = 0;
  uint64_t waited_us_ PENSTOCK_GUARDED_BY(mutex_) = 0;         // by the application, in all
  uint64_t waited_before_us_ PENSTOCK_GUARDED_BY(mutex_) = 0;  // waited_us_ before this step
};

}  // namespace penstock
