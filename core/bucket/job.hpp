// A bucket's job: its program in one step. Its state is a place in the list, so that parking costs
// nothing: where a stage waits the job returns, and the engine resumes it there.
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
  // Polls the device for the stage under way; true when it has its answer, or an error. [engine]
  bool poll(BucketRun& bucket, uint64_t look);
  const Status& status() const { return status_; }  // of one that has ended
  bool is_at_start() const { return at_ == 0; }

 private:
  Status carry_on(BucketRun& bucket, bool& parked);
  // Adds the time of the stage to the bucket and the timeline. Returns now.
  uint64_t take_note(BucketRun& bucket, const Stage& stage) const;

  size_t at_ = 0;
  bool waits_ = false;  // for what the stage at `at_` waits for
  uint64_t begun_us_ = 0;
  Status status_;
};

}  // namespace penstock
