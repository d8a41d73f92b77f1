#include "runs.hpp"

#include <planning/cost.hpp>
#include <planning/model.hpp>

#include <algorithm>
#include <utility>

namespace optimal {

namespace planning = penstock::planning;

namespace {

// A run that grows at its end.
class Growing {
 public:
  explicit Growing(const Sent& sent) : sent_(sent), bucket_(sent.model, sent.phase) {}

  void add(uint64_t begin, uint64_t end) {
    for (uint64_t i = begin; i < end; ++i) {
      const uint64_t gradient = sent_.gradients[i];
      bucket_.add(gradient);
      const double needed = planning::usable(sent_.model.gradients[gradient]->forward_us);
      needed_ = needed_ < 0 ? needed : std::min(needed_, needed);
    }
    ready_ = sent_.ready[end - 1];
  }

  Run run() const {
    Run run{ready_, bucket_.encode(), bucket_.exchange(), bucket_.decode(), 0, needed_};
    if (sent_.route == PENSTOCK_ROUTE_SPLIT) run.exchange = run.gather = run.exchange / 2;
    return run;
  }

 private:
  const Sent& sent_;
  planning::Together bucket_;
  double ready_ = 0;
  double needed_ = -1;
};

}  // namespace

Sent::Sent(const penstock_model& model, uint32_t phase, uint32_t route)
    : model(model),
      phase(phase),
      route(route),
      gradients(planning::taking_part(model, phase)),
      ready(planning::ready_times(model, gradients)) {}

Run Sent::run(uint64_t begin, uint64_t end) const {
  Growing growing(*this);
  growing.add(begin, end);
  return growing.run();
}

Runs::Runs(const Sent& sent, std::vector<uint64_t> places)
    : places_(std::move(places)), runs_(size_t{n_parts()} * n_parts()) {
  for (uint32_t begin = 0; begin < n_parts(); ++begin) {
    Growing growing(sent);
    for (uint32_t end = begin + 1; end <= n_parts(); ++end) {
      growing.add(places_[end - 1], places_[end]);
      runs_[begin * n_parts() + end - 1] = growing.run();
    }
  }
}

}  // namespace optimal
