// OMGS-SGD on measured times; see planned.hpp.
#include "planned.hpp"

#include <planning/cost.hpp>
#include <planning/model.hpp>

#include "merging.hpp"

namespace omgs {

namespace planning = penstock::planning;

namespace {

class Group {
 public:
  Group(const penstock_model& model, const std::vector<uint64_t>& gradients, uint32_t phase)
      : model_(&model), gradients_(&gradients), phase_(phase) {}

  void add(std::size_t i) {
    const penstock_gradient_model& gradient = *model_->gradients[(*gradients_)[i]];
    const penstock_candidate& candidate = *gradient.candidates[0];
    coding_.add(candidate, gradient.numel);
    planning::add_payload(volume_, candidate, phase_);
  }
  double selection() const { return coding_.encode_us(); }
  double exchange() const { return planning::exchange_us(*model_, volume_); }

 private:
  const penstock_model* model_;
  const std::vector<uint64_t>* gradients_;
  uint32_t phase_;
  planning::Coding coding_;
  planning::Volume volume_;
};

}  // namespace

std::vector<std::vector<uint64_t>> planned_buckets(const penstock_model& model, uint32_t phase) {
  const std::vector<uint64_t> gradients = planning::taking_part(model, phase);
  const std::vector<double> ready = planning::ready_times(model, gradients);
  return planning::runs_of(gradients,
                           merged_counts(differences(ready), Group(model, gradients, phase)));
}

}  // namespace omgs
