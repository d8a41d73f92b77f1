// Measures the device time of the work between two marks in a stream. The host does not wait: the
// time is available when the device has reached the second mark.
#pragma once

#include "core/device/device.hpp"

#include <optional>

namespace penstock {

class Stopwatch {
 public:
  static Result<Stopwatch> make(const Device& device);

  // Starts measuring the work that is queued on the stream until end(). Another begin() starts
  // again.
  Status begin(const Stream& stream);
  Status end(const Stream& stream);
  // Microseconds, once for each pair of marks; empty if there is no such pair or the device has not
  // reached its end.
  Status take(std::optional<double>& us);

 private:
  enum class State { idle, begun, ended };
  Stopwatch(Event begin, Event end) : begin_(std::move(begin)), end_(std::move(end)) {}

  Event begin_, end_;
  State state_ = State::idle;
};

}  // namespace penstock
