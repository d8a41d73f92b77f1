#include "runs.hpp"

#include <planning/cost.hpp>
#include <planning/model.hpp>

#include <algorithm>
#include <utility>

namespace optimal {

namespace planning = penstock::planning;

Runs::Runs(const penstock_model& model, uint32_t phase, uint32_t route,
           const std::vector<uint64_t>& gradients, std::vector<uint64_t> places)
    : places_(std::move(places)), runs_(size_t{n_parts()} * n_parts()) {
  const std::vector<double> ready = planning::ready_times(model, gradients);
  const bool splits = route == PENSTOCK_ROUTE_SPLIT;
  for (uint32_t begin = 0; begin < n_parts(); ++begin) {
    planning::Together bucket(model, phase);
    double needed = planning::usable(model.gradients[gradients[places_[begin]]]->forward_us);
    for (uint32_t end = begin + 1; end <= n_parts(); ++end) {
      for (uint64_t i = places_[end - 1]; i < places_[end]; ++i) {
        bucket.add(gradients[i]);
        needed = std::min(needed, planning::usable(model.gradients[gradients[i]]->forward_us));
      }
      const double whole = bucket.exchange();
      const double half = whole / 2;
      runs_[begin * n_parts() + end - 1] = {ready[places_[end] - 1], bucket.encode(),
                                            splits ? half : whole,   bucket.decode(),
                                            splits ? half : 0,       needed};
    }
  }
}

}  // namespace optimal
