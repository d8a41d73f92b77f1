#include "core/device/stopwatch.hpp"

namespace penstock {

Result<Stopwatch> Stopwatch::make(const Device& device) {
  PENSTOCK_ASSIGN(Event begin, Event::make_timed(device));
  PENSTOCK_ASSIGN(Event end, Event::make_timed(device));
  return Stopwatch(std::move(begin), std::move(end));
}

Status Stopwatch::begin(const Stream& stream) {
  state_ = State::begun;
  return begin_.record(stream.handle());
}

Status Stopwatch::end(const Stream& stream) {
  state_ = State::ended;
  return end_.record(stream.handle());
}

Status Stopwatch::take(std::optional<double>& us) {
  us.reset();
  if (state_ != State::ended) return {};
  bool done = false;
  PENSTOCK_TRY(end_.query(done));
  if (!done) return {};
  state_ = State::idle;
  PENSTOCK_ASSIGN(us, end_.us_since(begin_));
  return {};
}

}  // namespace penstock
