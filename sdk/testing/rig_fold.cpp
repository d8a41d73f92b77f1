// The rig's folded encode, which also does the work of compensate.
#include <penstock/fold.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <testing/rig.hpp>

namespace penstock::test {

// The forms of memory.h in plain loops: the expected work after compensate.
std::vector<float> CompressorRig::compensated(uint32_t rank, uint64_t item,
                                              const StepSettings& settings,
                                              std::vector<float>* momentum) const {
  const penstock_memory_need& need = memory_needs_[item].c;
  const SimulatedItem& of = ranks_[rank].items[item];
  std::vector<float> result = work(rank, item);
  if (need.form == PENSTOCK_FORM_NONE) return result;  // compensated before, apart from encode
  if (momentum != nullptr) momentum->resize(result.size());
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
    if (momentum != nullptr) (*momentum)[e] = next;
  }
  return result;
}

void CompressorRig::compensate_as_stand_in(const StepSettings& settings,
                                           const std::vector<bool>& sends) {
  if (settings_.form == PENSTOCK_FORM_NONE) return;
  for (uint32_t r = 0; r < settings_.ranks; ++r)
    for (uint64_t i = 0; i < n_items(); ++i) {
      if (!sends[r]) continue;
      std::vector<float> momentum;
      const std::vector<float> result = compensated(r, i, settings, &momentum);
      SimulatedItem& item = ranks_[r].items[i];
      std::copy(result.begin(), result.end(), item.work());
      if (settings_.form == PENSTOCK_FORM_AFFINE) continue;
      auto* u =
          static_cast<float*>(item.memory_states[memory_needs_[i].c.momentum_state].tensor.data);
      std::copy(momentum.begin(), momentum.end(), u);
    }
}

namespace {

// Moves a tensor's numbers to other storage and makes its own storage invalid.
struct Moved {
  std::vector<float> numbers;
  std::vector<float> as_they_were;
  penstock_tensor tensor;

  explicit Moved(const penstock_tensor& from) : tensor(from) {
    auto* data = static_cast<float*>(from.data);
    numbers.assign(data, data + from.numel);
    as_they_were = numbers;
    std::fill(data, data + from.numel, std::numeric_limits<float>::quiet_NaN());
    tensor.data = numbers.data();
  }
  bool intact() const {
    return same_bytes(numbers.data(), as_they_were.data(), numbers.size() * sizeof(float));
  }
};

}  // namespace

Outcome CompressorRig::encode_folded(uint32_t rank, uint32_t round, const ItemList& items,
                                     const StepSettings& settings,
                                     const std::vector<penstock_payload*>& payloads) {
  const CompressorInstance& compressor = *ranks_[rank].compressor;
  const penstock_fold_encoder* encoder =
      fold_encoder_of(compressor, settings_.fold_reads_before ? PENSTOCK_FOLD_EXTENSION_2
                                                              : PENSTOCK_FOLD_EXTENSION);
  if (encoder == nullptr) throw std::runtime_error("the compressor folds nothing");
  std::vector<penstock_fold> folds(items.size());
  std::vector<const penstock_fold*> pointers;
  std::deque<Moved> before;
  for (uint64_t p = 0; p < items.size(); ++p) {
    const penstock_memory_need& need = memory_needs_[items[p]].c;
    SimulatedItem& item = ranks_[rank].items[items[p]];
    if (need.form == PENSTOCK_FORM_NONE) {  // for example of a gradient that is sent whole
      pointers.push_back(nullptr);
      continue;
    }
    const bool has_momentum = need.form != PENSTOCK_FORM_AFFINE;
    penstock_fold& fold = folds[p];
    fold.struct_size = sizeof fold;
    fold.form = need.form;
    fold.beta = need.beta;
    fold.gamma = need.gamma;
    if (has_momentum) fold.momentum = &item.memory_states[need.momentum_state].tensor;
    if (settings_.fold_reads_before) {
      fold.work_before = &before.emplace_back(item.for_compressor.work).tensor;
      if (has_momentum) fold.momentum_before = &before.emplace_back(*fold.momentum).tensor;
    }
    pointers.push_back(&fold);
  }
  const ItemViews views = compressor_items(rank, items);
  const penstock_step step = step_facts(rank, settings);
  const penstock_exec call = exec();
  Outcome outcome = take(encoder->encode(compressor.self(), &call, &step, round, views.data(),
                                         views.size(), payloads.data(), pointers.data()));
  for (const Moved& moved : before)
    promise(moved.intact(), "a folded encode changed work_before or momentum_before");
  return outcome;
}

std::vector<bool> CompressorRig::absent_after_encode(const RankTensors& gradients) {
  const StepSettings settings;
  load_gradients(gradients, settings);
  ItemList items;
  std::vector<PayloadPointer> payloads;
  std::vector<penstock_payload*> pointers;
  for (uint64_t i = 0; i < n_items(); ++i) {
    if (needs()[i].rounds.empty()) continue;
    items.push_back(i);
    payloads.push_back(std::make_unique<OwnedPayload>(needs()[i].rounds[0].sections, 0));
    pointers.push_back(payloads.back()->c());
  }
  require(encode_folded(0, 0, items, settings, pointers), "encode");
  promise_intact("encode");
  std::vector<bool> absent(n_items(), true);
  for (uint64_t p = 0; p < items.size(); ++p) {
    promise(payloads[p]->intact(), "encode wrote beyond a section of a payload");
    absent[items[p]] = pointers[p]->kind == PENSTOCK_PAYLOAD_ABSENT;
  }
  return absent;
}

const penstock_fold_encoder* fold_encoder_of(const CompressorInstance& compressor,
                                             std::string_view id) {
  if (compressor.table().extension == nullptr) return nullptr;
  return static_cast<const penstock_fold_encoder*>(
      compressor.table().extension(compressor.self(), {id.data(), id.size()}));
}

}  // namespace penstock::test
