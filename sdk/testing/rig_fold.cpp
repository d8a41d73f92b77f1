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

// A state as it was before the step, read elsewhere than where the step writes it.
class Earlier {
 public:
  explicit Earlier(SimulatedState& state) : bytes_(state.bytes.copy()), tensor_(state.tensor) {
    tensor_.data = bytes_.data();
    before_ = bytes_;
    state.bytes.scribble();
  }
  Earlier(const Earlier&) = delete;
  Earlier& operator=(const Earlier&) = delete;

  const penstock_tensor* c() const { return &tensor_; }
  bool is_intact() const { return bytes_ == before_; }

 private:
  std::vector<unsigned char> bytes_, before_;
  penstock_tensor tensor_;
};

Outcome CompressorRig::encode_folded(uint32_t rank, uint32_t round, const ItemList& items,
                                     const StepSettings& settings,
                                     const std::vector<penstock_payload*>& payloads) {
  const CompressorInstance& compressor = *ranks_[rank].compressor;
  const auto ask = [&](std::string_view id) {
    return static_cast<const penstock_fold_encoder*>(
        compressor.table().extension(compressor.self(), {id.data(), id.size()}));
  };
  const penstock_fold_encoder* encoder = ask(PENSTOCK_FOLD_EXTENSION);
  if (encoder == nullptr) throw std::runtime_error("the compressor folds nothing");
  // In every other step from one generation into the next, by those that can.
  const penstock_fold_encoder* of_generations =
      index_ % 2 == 1 ? ask(PENSTOCK_FOLD_EXTENSION_2) : nullptr;
  if (of_generations != nullptr) encoder = of_generations;
  std::deque<Earlier> earlier;
  std::vector<penstock_fold> folds(items.size());
  std::vector<const penstock_fold*> pointers;
  for (uint64_t p = 0; p < items.size(); ++p) {
    const penstock_memory_need& need = memory_needs_[items[p]].c;
    StateTensors& states = ranks_[rank].items[items[p]].memory_states;
    if (need.form == PENSTOCK_FORM_NONE) throw std::runtime_error("the memory publishes no form");
    const bool has_momentum = need.form != PENSTOCK_FORM_AFFINE;
    folds[p].struct_size = sizeof folds[p];
    folds[p].form = need.form;
    folds[p].beta = need.beta;
    folds[p].gamma = need.gamma;
    if (has_momentum) folds[p].momentum = &states[need.momentum_state].tensor;
    if (of_generations != nullptr) {
      folds[p].work_before = earlier.emplace_back(states[need.work_state]).c();
      if (has_momentum)
        folds[p].momentum_before = earlier.emplace_back(states[need.momentum_state]).c();
    }
    pointers.push_back(&folds[p]);
  }
  const ItemViews views = compressor_items(rank, items);
  const penstock_step step = step_facts(rank, settings);
  const penstock_exec call = exec();
  const Outcome outcome = take(encoder->encode(compressor.self(), &call, &step, round, views.data(),
                                               views.size(), payloads.data(), pointers.data()));
  for (const Earlier& one : earlier)
    promise(one.is_intact(), "encode wrote to what was before the step");
  return outcome;
}

}  // namespace penstock::test
