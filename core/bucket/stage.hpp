// A stage of a bucket's program (program.hpp): the work between two points at which the bucket may
// have to wait. Stages are made with the plan. A step changes only the data to which they point,
// and allocates nothing. All functions are called on the engine thread.
#pragma once

#include "core/base/status.hpp"

#include <memory>
#include <string_view>
#include <vector>

namespace penstock {

class BucketRun;

class Stage {
 public:
  // The event that must happen between `begin` and `end`. `yield`: the job goes back to the
  // engine's queue once.
  enum class Wait { nothing, messages, device, next_forward, yield };
  // The time of the bucket to which the stage's time is added.
  enum class Part { none, encode, exchange, decode };

  explicit Stage(std::string_view name, Part part = Part::none, Wait wait = Wait::nothing)
      : name_(name), part_(part), wait_(wait) {}
  virtual ~Stage() = default;
  Stage(const Stage&) = delete;
  Stage& operator=(const Stage&) = delete;

  std::string_view name() const { return name_; }
  Part part() const { return part_; }
  Wait wait() const { return wait_; }

  // Whether the stage runs in this step. By default a stage does not run once the bucket is void.
  // Stages that every bucket needs, and stages that notify other ranks, override this function.
  virtual bool runs(const BucketRun& bucket) const;
  // Hands over the data that the stage sends, queues the work of a device, or does the whole work.
  virtual Status begin(BucketRun& bucket) = 0;
  // Whether the stage waits in this step; asked after `begin`. Wait::messages: `begin` has called
  // BucketRun::begin_transfers.
  virtual bool waits(const BucketRun&) const { return wait_ != Wait::nothing; }
  // Wait::device: sets `has_come` if the event has happened. `pass` is the number of the engine's
  // poll. It is equal for all jobs of a poll, so that one question to the device can answer several
  // jobs.
  virtual Status poll(BucketRun& bucket, uint64_t pass, bool& has_come);
  // Called after `begin`; if the stage waits, after the event.
  virtual Status end(BucketRun&) { return {}; }

 private:
  const std::string_view name_;
  const Part part_;
  const Wait wait_;
};

using Program = std::vector<std::unique_ptr<Stage>>;

}  // namespace penstock
