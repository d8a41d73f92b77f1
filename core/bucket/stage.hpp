// A stage of a bucket's program (program.hpp): what is done between two places where the bucket
// may have to wait. Stages are made with the plan; a step changes what they point to and allocates
// nothing. All functions are called on the engine thread.
#pragma once

#include "core/base/status.hpp"

#include <memory>
#include <string_view>
#include <vector>

namespace penstock {

class BucketRun;

class Stage {
 public:
  // What has to come after `begin` and before `end`. `turn`: the job goes back to the engine's
  // queue once.
  enum class Wait { nothing, messages, device, next_forward, turn };
  // Which of the bucket's times its time is added to.
  enum class Part { none, encode, exchange, decode };

  explicit Stage(std::string_view name, Part part = Part::none, Wait wait = Wait::nothing)
      : name_(name), part_(part), wait_(wait) {}
  virtual ~Stage() = default;
  Stage(const Stage&) = delete;
  Stage& operator=(const Stage&) = delete;

  std::string_view name() const { return name_; }
  Part part() const { return part_; }
  Wait wait() const { return wait_; }

  // Whether it runs in this step. By default a stage does not run once the bucket is void. Stages
  // that every bucket needs, and those that tell other ranks, say otherwise.
  virtual bool runs(const BucketRun& bucket) const;
  // Hands over what it sends, queues what a device does, or does all there is to do.
  virtual Status begin(BucketRun& bucket) = 0;
  // Whether anything has to come in this step, asked after begin. Wait::messages: begin has called
  // BucketRun::begin_transfers.
  virtual bool waits(const BucketRun&) const { return wait_ != Wait::nothing; }
  // Wait::device: whether it has come. `look` is the number of the engine's poll, the same for all
  // its jobs, so that one question to the device can answer several of them.
  virtual Status poll(BucketRun& bucket, uint64_t look, bool& has_come);
  // After begin, and after what it waits for has come, if it waits.
  virtual Status end(BucketRun&) { return {}; }

 private:
  const std::string_view name_;
  const Part part_;
  const Wait wait_;
};

using Program = std::vector<std::unique_ptr<Stage>>;

}  // namespace penstock
