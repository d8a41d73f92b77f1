// Messages of a measurement: several of a size at once, and how long they take together.
#pragma once

#include "core/bucket/context.hpp"

#include <memory>

namespace penstock {

class LinkTrial {
 public:
  virtual ~LinkTrial() = default;
  // Microseconds from the first submission to the last end, of `n` messages of `count` elements of
  // this rank; an all-gather brings as many of each other rank. The transport's errors, which end
  // the run: what it may still use is left behind.
  virtual Result<double> together_us(uint32_t pattern, uint64_t count, size_t n) = 0;

  const Channel& channel() const { return channel_; }  // that carries them
  uint64_t patterns() const { return patterns_; }      // of its, that go this way
  // On an ordered channel between steps only one message goes out of turn.
  bool goes_side_by_side() const { return goes_side_by_side_; }

 protected:
  LinkTrial(const Channel& channel, uint64_t patterns, bool goes_side_by_side)
      : channel_(channel), patterns_(patterns), goes_side_by_side_(goes_side_by_side) {}

 private:
  const Channel& channel_;
  const uint64_t patterns_;
  const bool goes_side_by_side_;
};

// What it may send and receive at most, all messages under way together.
struct TrialElements {
  uint64_t sent = 0, received = 0;
};

// How a trial's messages travel that lie in host memory: `tag` and those just below it are free.
struct HostWay {
  Communication& communication;
  Channel& channel;
  uint64_t limit_us;
  uint64_t tag;
};
std::unique_ptr<LinkTrial> make_trial(const HostWay& way, const TrialElements& most);

// From device to device each goes as a bucket's do: a header over the host's way, a turn, and then
// the message in the order of turns, so that other sets may be in the middle of a step.
struct DirectWay {
  HostWay tells;
  BetweenDevices& between;
  const Residents& residents;
  DirectTraffic& traffic;
};
// OUT_OF_MEMORY, DEVICE_ERROR.
Result<std::unique_ptr<LinkTrial>> make_trial(const DirectWay& way, const TrialElements& most);

}  // namespace penstock
