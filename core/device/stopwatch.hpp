// How long a device takes for what is queued between two marks in a stream. Nobody waits for it:
// the time is there when the device has come to the second mark.
#pragma once

#include "core/device/device.hpp"

#include <optional>

namespace penstock {

class Stopwatch {
 public:
  static Result<Stopwatch> make(const Device& device);

  // What is queued on the stream from now on, up to end(). A further begin() begins anew.
  Status begin(const Stream& stream);
  Status end(const Stream& stream);
  // Microseconds, once for each pair of marks; nothing where there is no such pair, or the device
  // has not come to its end.
  Status take(std::optional<double>& us);

 private:
  enum class State { idle, begun, ended };
  Stopwatch(Event begin, Event end) : begin_(std::move(begin)), end_(std::move(end)) {}

  Event begin_, end_;
  State state_ = State::idle;
};

}  // namespace penstock
