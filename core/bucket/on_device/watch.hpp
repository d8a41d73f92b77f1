// Measures how long the device takes for the work that a bucket's stages queue on it, for
// schedulers that plan by these times; the host sees only the time of queueing. Marks stand in the
// stream around each stage. The time between the marks is read when the bucket runs again, and no
// function waits for it.
#pragma once

#include "core/bucket/bucket.hpp"
#include "core/device/stopwatch.hpp"

#include <optional>

namespace penstock {

// Marks in a stream around the work that a call queues on it.
class StreamWatch final : public CallWatch {
 public:
  StreamWatch(Stopwatch stopwatch, const Stream& stream)
      : stopwatch_(std::move(stopwatch)), stream_(stream) {}
  Status begin() override { return stopwatch_.begin(stream_); }
  Status end() override { return stopwatch_.end(stream_); }
  Stopwatch& stopwatch() { return stopwatch_; }

 private:
  Stopwatch stopwatch_;
  const Stream& stream_;
};

class StageWatches {
 public:
  // Makes a stopwatch for every encode and decode stage of the program, and for the device's
  // compressor calls. DEVICE_ERROR. [control]
  Status make(BucketRun& bucket);
  Stopwatch* of(size_t stage) const { return watches_.empty() ? nullptr : watches_[stage].get(); }

  // Adds the device's times of the bucket's last step to the bucket's times, and sets the times of
  // its calls, if all the work is done; `found` says whether it is. It returns the times of a step
  // only once. [engine]
  Status take(BucketRun& bucket, bool& found);

 private:
  Status make_calls(const Residents& residents, std::vector<CompressorCall>& calls);

  std::vector<std::unique_ptr<Stopwatch>> watches_;  // by stage; null: its time is not counted
  std::vector<std::pair<CompressorCall*, StreamWatch*>> calls_;
  size_t last_ = 0;
};

// Takes the times of the last step. The bucket's own times of this step begin with them.
class TakeTimes final : public Stage {
 public:
  TakeTimes() : Stage("take times") {}
  bool runs(const BucketRun&) const override { return true; }
  Status begin(BucketRun& bucket) override;
};

}  // namespace penstock
