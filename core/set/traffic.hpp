// What a set sends: counted, and compared with what it would send without compression.
#pragma once

#include "core/bucket/context.hpp"
#include "core/fit/traffic.hpp"
#include "core/trace/log.hpp"

#include <cstdint>
#include <vector>

namespace penstock {

// What this rank has sent through the channels of a set.
struct Sent {
  uint64_t handed_over = 0, moved = 0, messages = 0;
  Sent& operator+=(const Sent& other);
  Sent operator-(const Sent& other) const;
};

class Traffic {
 public:
  // All outlive it. `channels`: those that the set uses alone.
  Traffic(const SetContext& set, const std::vector<Channel*>& channels, Log& log)
      : set_(set), channels_(channels), log_(log) {}

  Sent total() const;  // [any] since the set was made
  // [any] By steps: since start(), without measurements.
  Sent by_steps() const { return total() - by_others_; }
  const Sent& by_measurements() const { return by_measurements_; }  // [any]

  // [control] The first step begins.
  void start() { by_others_ = total(); }
  // [control] What was sent since `before`, a total, was sent by a measurement.
  void leave_out(const Sent& before);

  // [control] Compares what each stage sends, as planned, with dense all-reduces. Rank 0 warns
  // where a stage sends more: it does what the scheme says, and yet the run is slower for it.
  // `set_flags`: the frontend's.
  void compare(const std::vector<StageTraffic>& stages, uint32_t set_flags);
  double dense_per_step() const { return dense_per_step_; }  // bytes without compression

  // [control] True once, after the steps of trial, if payloads have no planned size.
  bool tells_after(uint64_t steps) const { return may_send_more_ && steps == kStepsOfTrial; }
  // Compares what these steps have sent. `planned`: of the stage in force.
  void compare_counted(uint64_t steps, const Carriers& carriers, const StageTraffic& planned);

 private:
  static constexpr uint64_t kStepsOfTrial = 10;

  const SetContext& set_;
  const std::vector<Channel*>& channels_;
  Log& log_;
  Sent by_others_;  // before the first step, and by measurements
  Sent by_measurements_;
  double dense_per_step_ = 0;
  uint32_t set_flags_ = 0;
  bool may_send_more_ = false;  // nothing was warned of yet, and payloads have no planned size
};

}  // namespace penstock
