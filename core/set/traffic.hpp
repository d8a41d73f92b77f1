// Counts the bytes that a set sends, and compares them with the bytes that it would send without
// compression.
#pragma once

#include "core/bucket/context.hpp"
#include "core/fit/traffic.hpp"
#include "core/trace/log.hpp"

#include <cstdint>
#include <vector>

namespace penstock {

// The counts of this rank on the channels of a set: bytes handed over to collectives, bytes moved
// through the network, messages.
struct Sent {
  uint64_t handed_over = 0, moved = 0, messages = 0;
  Sent& operator+=(const Sent& other);
  Sent operator-(const Sent& other) const;
};

class Traffic {
 public:
  // The arguments must outlive the object. `channels`: the channels that only this set uses.
  Traffic(const SetContext& set, const std::vector<Channel*>& channels, Log& log)
      : set_(set), channels_(channels), log_(log) {}

  Sent total() const;  // [any] since the set was made
  // [any] The counts of steps: since start(), without measurements.
  Sent by_steps() const { return total() - by_others_; }
  const Sent& by_measurements() const { return by_measurements_; }  // [any]

  // [control] The first step begins.
  void start() { by_others_ = total(); }
  // [control] A measurement has ended. `before`: total() at its beginning.
  void leave_out(const Sent& before);

  // [control] Compares the planned traffic of each stage with dense all-reduces. Rank 0 warns if a
  // stage sends more, because the scheme then makes the run slower. `set_flags`: the flags
  // PENSTOCK_SET_* of the frontend.
  void compare(const std::vector<StageTraffic>& stages, uint32_t set_flags);
  double dense_per_step() const { return dense_per_step_; }  // bytes without compression

  // [control] True once, after the trial steps, if payloads have no planned size: the caller then
  // calls compare_counted().
  bool tells_after(uint64_t steps) const { return may_send_more_ && steps == kStepsOfTrial; }
  // Compares the counts of the first `steps` steps. `planned`: the traffic of the stage in force.
  void compare_counted(uint64_t steps, const Carriers& carriers, const StageTraffic& planned);

 private:
  static constexpr uint64_t kStepsOfTrial = 10;

  const SetContext& set_;
  const std::vector<Channel*>& channels_;
  Log& log_;
  Sent by_others_;  // counts before the first step, and of measurements
  Sent by_measurements_;
  double dense_per_step_ = 0;
  uint32_t set_flags_ = 0;
  bool may_send_more_ = false;  // payloads have no planned size, and no warning was written yet
};

}  // namespace penstock
