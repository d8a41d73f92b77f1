// How long the device takes for what a bucket's stages queue on it, for schedulers that plan by it;
// the host sees only how long it takes to queue. Marks stand in the stream around each stage. The
// time between them is read when the bucket runs again, and nothing waits for it.
#pragma once

#include "core/bucket/bucket.hpp"
#include "core/device/stopwatch.hpp"

#include <optional>

namespace penstock {

// Marks in a stream around what a call queues on it.
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
  // For all stages of the program that count as some part of the bucket's time. DEVICE_ERROR.
  // [control]
  Status make(BucketRun& bucket);
  Stopwatch* of(size_t stage) const { return watches_.empty() ? nullptr : watches_[stage].get(); }

  // Adds what the device has taken in the bucket's last step to its times and sets that of its
  // calls, if all of it is done; `found` says so. It returns the times of a step once. [engine]
  Status take(BucketRun& bucket, bool& found);

 private:
  Status make_calls(const Residents& residents, std::vector<CompressorCall>& calls);

  std::vector<std::unique_ptr<Stopwatch>> watches_;  // by stage; null: it counts as nothing
  std::vector<std::pair<CompressorCall*, StreamWatch*>> calls_;
  size_t last_ = 0;
};

// The times of the step before. The bucket's own of this step begin with them.
class TakeTimes final : public Stage {
 public:
  TakeTimes() : Stage("take times") {}
  bool runs(const BucketRun&) const override { return true; }
  Status begin(BucketRun& bucket) override;
};

}  // namespace penstock
