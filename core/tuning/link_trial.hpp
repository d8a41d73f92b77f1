// The messages of a measurement: several messages of one size at once, and the time that they take
// together.
#pragma once

#include "core/bucket/context.hpp"

#include <memory>

namespace penstock {

class LinkTrial {
 public:
  virtual ~LinkTrial() = default;
  // Microseconds from the first submission to the last end of `n` messages with `count` elements
  // from this rank; an all-gather receives as many elements from each other rank. An error of the
  // transport ends the run; memory that the transport may still use is leaked on purpose.
  virtual Result<double> together_us(uint32_t pattern, uint64_t count, size_t n) = 0;

  const Channel& channel() const { return channel_; }  // the channel of the messages
  // Patterns of the channel that this path carries.
  uint64_t patterns() const { return patterns_; }
  // Whether messages run concurrently. On an ordered channel between steps, only one message at a
  // time may go outside the order.
  bool goes_side_by_side() const { return goes_side_by_side_; }

 protected:
  LinkTrial(const Channel& channel, uint64_t patterns, bool goes_side_by_side)
      : channel_(channel), patterns_(patterns), goes_side_by_side_(goes_side_by_side) {}

 private:
  const Channel& channel_;
  const uint64_t patterns_;
  const bool goes_side_by_side_;
};

// The most elements that a trial may send and receive in all messages under way together.
struct TrialElements {
  uint64_t sent = 0, received = 0;
};

// The path of a trial's messages in host memory. `tag` and the tags just below it must be free.
struct HostPath {
  Communication& communication;
  Channel& channel;
  uint64_t limit_us;
  uint64_t tag;
};
std::unique_ptr<LinkTrial> make_trial(const HostPath& path, const TrialElements& most);

// Device-to-device path. Each message travels like a bucket's message: a header over the host path,
// a ticket, then the message in the order of tickets. Therefore other sets may be in the middle of
// a step.
struct DirectPath {
  HostPath tells;
  BetweenDevices& between;
  const Residents& residents;
  DirectTraffic& traffic;
};
// OUT_OF_MEMORY, DEVICE_ERROR.
Result<std::unique_ptr<LinkTrial>> make_trial(const DirectPath& path, const TrialElements& most);

}  // namespace penstock
