// The rig's folded encode: what compensate would have done comes with it.
#include <penstock/fold.h>

#include <stdexcept>
#include <testing/rig.hpp>

namespace penstock::test {

// The forms of memory.h in plain loops: what work is to hold once it was compensated.
std::vector<float> CompressorRig::compensated(uint32_t rank, uint64_t item,
                                              const StepSettings& settings) const {
  const penstock_memory_need& need = memory_needs_[item].c;
  const SimulatedItem& of = ranks_[rank].items[item];
  std::vector<float> result = work(rank, item);
  const auto unscale = static_cast<float>(1 / settings.grad_scale);
  const auto beta = static_cast<float>(need.beta);
  for (uint64_t e = 0; e < result.size(); ++e) {
    const float g = of.grad[e] * unscale;
    if (need.form == PENSTOCK_FORM_AFFINE) {
      result[e] = beta * result[e] + static_cast<float>(need.gamma) * g;
      continue;
    }
    const float u = static_cast<const float*>(of.memory_states[need.momentum_state].tensor.data)[e];
    const bool nesterov = need.form == PENSTOCK_FORM_NESTEROV;
    const float next = nesterov ? beta * (u + g) : beta * u + g;
    result[e] = result[e] + next;
    if (nesterov) result[e] = result[e] + g;
  }
  return result;
}

Outcome CompressorRig::encode_folded(uint32_t rank, uint32_t round, const ItemList& items,
                                     const StepSettings& settings,
                                     const std::vector<penstock_payload*>& payloads) {
  const CompressorInstance& compressor = *ranks_[rank].compressor;
  const auto* encoder = static_cast<const penstock_fold_encoder*>(compressor.table().extension(
      compressor.self(), {PENSTOCK_FOLD_EXTENSION, sizeof PENSTOCK_FOLD_EXTENSION - 1}));
  if (encoder == nullptr) throw std::runtime_error("the compressor folds nothing");
  std::vector<penstock_fold> folds(items.size());
  std::vector<const penstock_fold*> pointers;
  for (uint64_t p = 0; p < items.size(); ++p) {
    const penstock_memory_need& need = memory_needs_[items[p]].c;
    if (need.form == PENSTOCK_FORM_NONE) throw std::runtime_error("the memory publishes no form");
    folds[p].struct_size = sizeof folds[p];
    folds[p].form = need.form;
    folds[p].beta = need.beta;
    folds[p].gamma = need.gamma;
    if (need.form != PENSTOCK_FORM_AFFINE)
      folds[p].momentum = &ranks_[rank].items[items[p]].memory_states[need.momentum_state].tensor;
    pointers.push_back(&folds[p]);
  }
  const ItemViews views = compressor_items(rank, items);
  const penstock_step step = step_facts(rank, settings);
  const penstock_exec call = exec();
  return take(encoder->encode(compressor.self(), &call, &step, round, views.data(), views.size(),
                              payloads.data(), pointers.data()));
}

}  // namespace penstock::test
