// FGBuff's planner as its authors meant it: every bucket fills while the bucket before it is sent.
#include "planned.hpp"

#include <algorithm>

#include <planning/cost.hpp>
#include <planning/model.hpp>

namespace fgbuff {

namespace planning = penstock::planning;

namespace {

// The gradients in order of readiness, with the values that the planner needs of each.
struct Lane {
  explicit Lane(const penstock_model& model, uint32_t phase)
      : model(model),
        phase(phase),
        gradients(planning::taking_part(model, phase)),
        ready(planning::ready_times(model, gradients)) {}

  size_t size() const { return gradients.size(); }
  // Backward time between a gradient and the one before it.
  double backward(size_t i) const { return i == 0 ? ready[0] : ready[i] - ready[i - 1]; }

  planning::Together nothing() const { return planning::Together(model, phase); }

  const penstock_model& model;
  uint32_t phase;
  std::vector<uint64_t> gradients;
  std::vector<double> ready;
};

// The number of gradients in the first bucket: the smallest number whose saved start-ups are worth
// the backward time that fills the bucket, and at most `first_count`, even if start-ups are too
// cheap to be worth any wait. One gradient saves no start-up, so the test begins with two
// gradients: otherwise the answer would always be one gradient.
size_t first_bucket(const Lane& lane, uint64_t first_count) {
  const double startup = planning::startup_us(lane.model);
  const size_t most = std::min<size_t>(lane.size(), std::max<uint64_t>(first_count, 1));
  for (size_t count = 2; count < most; ++count)
    if (static_cast<double>(count - 1) * startup >= lane.ready[count - 1]) return count;
  return most;
}

}  // namespace

std::vector<std::vector<uint64_t>> planned_buckets(const penstock_model& model, uint32_t phase,
                                                   uint64_t first_count) {
  const Lane lane(model, phase);
  std::vector<std::vector<uint64_t>> result;
  size_t begin = 0;
  double engine_free = 0;
  double link_free = 0;
  const auto emit = [&](size_t end) {
    result.emplace_back(lane.gradients.begin() + static_cast<ptrdiff_t>(begin),
                        lane.gradients.begin() + static_cast<ptrdiff_t>(end));
    planning::Together bucket = lane.nothing();
    for (size_t i = begin; i < end; ++i) bucket.add(lane.gradients[i]);
    const double exchange = bucket.exchange();
    engine_free = std::max(engine_free, lane.ready[end - 1]) + bucket.encode();
    link_free = std::max(link_free, engine_free) + exchange;
    begin = end;
    return exchange;
  };

  if (lane.size() == 0) return result;
  double current = emit(first_bucket(lane, first_count));
  while (begin < lane.size()) {
    // After the end of backward no bucket can be hidden behind it, so one bucket for the rest saves
    // start-ups.
    if (link_free >= lane.ready.back()) {
      emit(lane.size());
      break;
    }
    double waited = 0;
    planning::Together bucket = lane.nothing();
    size_t end = begin;
    while (end < lane.size()) {
      waited += lane.backward(end);
      bucket.add(lane.gradients[end]);
      const bool hidden = waited + bucket.encode() <= current;
      if (!hidden && end > begin) break;
      ++end;
      if (!hidden) break;  // one gradient always goes
    }
    current = emit(end);
  }
  return result;
}

}  // namespace fgbuff
