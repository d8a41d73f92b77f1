#include "core/bucket/job.hpp"

#include "core/bucket/bucket.hpp"
#include "core/bucket/placement.hpp"

#include <penstock/exception.hpp>

namespace penstock {

void Job::start() {
  at_ = 0;
  waits_ = false;
  status_ = Status();
}

bool Job::resume(BucketRun& bucket) {
  bool parked = false;
  try {
    status_ = carry_on(bucket, parked);
  } catch (...) {
    // Plugin calls turn the exceptions of plugins into a Status, so an exception here is our own.
    status_ = Status(Code::internal, "a bucket's job threw " + sdk::current_exception_text());
  }
  return !parked;
}

Status Job::carry_on(BucketRun& bucket, bool& parked) {
  uint64_t now = now_us();  // the next stage begins when this one ends: one reading a stage
  for (; at_ < bucket.program.size(); ++at_) {
    Stage& stage = *bucket.program[at_];
    if (!waits_) {
      if (!stage.runs(bucket)) continue;
      begun_us_ = now;
      PENSTOCK_TRY(bucket.placement->stage_begins(at_));
      PENSTOCK_TRY(stage.begin(bucket));
      PENSTOCK_TRY(bucket.placement->stage_begun(at_));
      waits_ = stage.waits(bucket);
      parked = waits_ && bucket.park(stage.wait());
      if (parked) return {};
    }
    // Only an awaited event leaves an error in the bucket.
    if (std::exchange(waits_, false)) PENSTOCK_TRY(bucket.failure);
    PENSTOCK_TRY(stage.end(bucket));
    now = take_note(bucket, stage);
  }
  return {};
}

uint64_t Job::take_note(BucketRun& bucket, const Stage& stage) const {
  const uint64_t now = now_us();
  bucket.add_time(stage.part(), now - begun_us_ - std::exchange(bucket.counted_us, 0));
  Timeline& timeline = *bucket.context.timeline;
  if (!timeline.enabled()) return now;
  const bool sends = stage.part() == Stage::Part::exchange;
  timeline.add({std::string(stage.name()), bucket.lane, begun_us_, now, bucket.context.step.index,
                bucket.scheme, sends ? bucket.exchange_bytes : 0, 0});
  return now;
}

bool Job::poll(BucketRun& bucket, uint64_t pass) {
  bool has_come = false;
  bucket.failure = bucket.program[at_]->poll(bucket, pass, has_come);
  return has_come || !bucket.failure.ok();
}

bool Stage::runs(const BucketRun& bucket) const {
  return !bucket.is_void;
}

Status Stage::poll(BucketRun&, uint64_t, bool& has_come) {
  has_come = true;
  return {};
}

}  // namespace penstock
