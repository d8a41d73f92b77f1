// A bucket's job: its program in one step. Its state is a position in the list of stages, so that
// parking costs nothing: if a stage waits, the job returns, and the engine resumes it at this
// position.
#pragma once

#include "core/bucket/stage.hpp"

namespace penstock {

class Job {
 public:
  // Goes to the first stage of the bucket's program.
  void start();
  // Runs until it waits or ends; true when it has ended. An error ends it where it is: no further
  // stage runs. [engine]
  bool resume(BucketRun& bucket);
  // Polls the device for the stage under way; true if the device has finished, or on an error.
  // [engine]
  bool poll(BucketRun& bucket, uint64_t pass);
  const Status& status() const { return status_; }  // of a finished job
  bool is_at_start() const { return at_ == 0; }

 private:
  Status carry_on(BucketRun& bucket, bool& parked);
  // Adds the time of the stage to the bucket and the timeline. Returns the current time.
  uint64_t take_note(BucketRun& bucket, const Stage& stage) const;

  size_t at_ = 0;
  bool waits_ = false;  // the job is parked in the stage at `at_`
  uint64_t begun_us_ = 0;
  Status status_;
};

}  // namespace penstock
