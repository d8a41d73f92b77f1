// MG-WFBP on measured times; see planned.hpp.
#include "planned.hpp"

#include <planning/cost.hpp>
#include <planning/model.hpp>

#include "merging.hpp"

namespace mgwfbp {

namespace planning = penstock::planning;

namespace {

class Message {
 public:
  Message(const penstock_model& model, const std::vector<uint64_t>& gradients, uint32_t phase)
      : model_(&model), gradients_(&gradients), phase_(phase) {}

  void add(std::size_t i) {
    const penstock_gradient_model& gradient = *model_->gradients[(*gradients_)[i]];
    planning::add_payload(volume_, *gradient.candidates[0], phase_);
  }
  double time() const { return planning::exchange_us(*model_, volume_); }

 private:
  const penstock_model* model_;
  const std::vector<uint64_t>* gradients_;
  uint32_t phase_;
  planning::Volume volume_;
};

}  // namespace

std::vector<std::vector<uint64_t>> planned_buckets(const penstock_model& model, uint32_t phase) {
  const std::vector<uint64_t> gradients = planning::taking_part(model, phase);
  const std::vector<double> ready = planning::ready_times(model, gradients);
  return planning::runs_of(gradients, merged_counts(ready, planning::startup_us(model),
                                                    Message(model, gradients, phase)));
}

}  // namespace mgwfbp
