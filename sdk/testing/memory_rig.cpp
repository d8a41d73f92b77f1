// See memory_rig.hpp.
#include <algorithm>
#include <cmath>
#include <testing/memory_rig.hpp>

namespace penstock::test {
namespace {

// Compares sums of a few float32 values, which may have another order than the rig's sums.
bool near(double value, double expected, double magnitude) {
  return std::abs(value - expected) <= 1e-5 * magnitude + 1e-6;
}

// The need that a sparse or a lossless compressor declares for an item.
PlannedNeed compressor_need(uint64_t numel, bool lossless) {
  PlannedNeed need;
  PlannedRound& round = need.rounds.emplace_back();
  const auto section = [&](uint32_t role, uint32_t dtype) {
    penstock_section_bound& bound = round.sections.emplace_back();
    bound.struct_size = sizeof bound;
    bound.capacity = numel;
    bound.role = role;
    bound.dtype = dtype;
  };
  if (!lossless) section(PENSTOCK_ROLE_INDICES, PENSTOCK_UINT32);
  section(PENSTOCK_ROLE_VALUES, PENSTOCK_FLOAT32);
  round.c.struct_size = sizeof round.c;
  round.c.n_sections = round.sections.size();
  round.c.combine = lossless ? PENSTOCK_COMBINE_SUM : PENSTOCK_COMBINE_GATHER;
  round.c.result = PENSTOCK_RESULT_MEAN;
  need.part_alignment = 1;
  if (lossless) need.flags = PENSTOCK_NEED_LOSSLESS | PENSTOCK_NEED_LINEAR;
  return need;
}

}  // namespace

MemoryRig::MemoryRig(const LoadedPlugin& memory, const OptionSettings& options, const Shape& shape,
                     bool lossless)
    : memory_(memory, options), item_(shape, "gradient", 0) {
  if (lossless) item_.c.flags = PENSTOCK_ITEM_LOSSLESS;
  about_to("plan: " + text_of(shape) + " floats");
  std::vector<PlannedNeed> compressor;
  compressor.push_back(compressor_need(numel(), lossless));
  planned_ = std::move(ask_needs(memory_, memory, {&item_.c}, compressor)[0]);
  item_.memory_states.add(planned_);
  for (const penstock_state_declaration& declared : planned_.states)
    keeps_ |= declared.state_class == PENSTOCK_STATE_MASS;
  item_.lay_out(need(), false);
  items_ = {&item_.for_memory};
  step_.struct_size = sizeof step_;
  step_.seed = 1;
  step_.world = 1;
}

void MemoryRig::call(const std::string& name, const std::function<Outcome()>& made) {
  about_to(sdk::text(name, ": ", text_of(item_.shape), " floats, step ", step_.index));
  require(made(), name);
  item_.promise_intact(name);
}

const float* MemoryRig::state(uint64_t index) const {
  return static_cast<const float*>(item_.memory_states[index].tensor.data);
}

std::vector<double> MemoryRig::expected_work() const {
  if (need().form == PENSTOCK_FORM_NONE || !keeps_in_work()) return {};
  std::vector<double> expected(item_.work(), item_.work() + numel());
  for (uint64_t e = 0; e < expected.size(); ++e) {
    const double g = item_.grad[e] / step_.grad_scale;
    if (need().form == PENSTOCK_FORM_AFFINE) {
      expected[e] = need().beta * expected[e] + need().gamma * g;
      continue;
    }
    const double u = state(need().momentum_state)[e];
    const bool heavy = need().form == PENSTOCK_FORM_HEAVY_BALL;
    expected[e] += heavy ? need().beta * u + g : need().beta * (u + g) + g;
  }
  return expected;
}

void MemoryRig::compensate(uint64_t step, const std::vector<float>& gradient, double grad_scale) {
  step_.index = step;
  step_.grad_scale = grad_scale;
  for (uint64_t e = 0; e < numel(); ++e)
    item_.grad[e] = gradient[e] * static_cast<float>(grad_scale);
  states_before_ = item_.memory_states.copy();
  Guarded<float> scalars(need().n_scalars);
  float* summed = need().n_scalars > 0 ? scalars.data() : nullptr;
  if (summed != nullptr)
    call("measure", [&] { return memory_.measure(exec_, step_, items_, summed); });
  promise(scalars.intact(), "measure wrote beyond ", need().n_scalars, " scalars");
  const std::vector<double> expected = expected_work();
  call("compensate", [&] { return memory_.compensate(exec_, step_, items_, summed); });
  compressed_.assign(item_.work(), item_.work() + numel());
  kept_ = compressed_;
  before_.assign(item_.memory_states.size(), {});
  for (uint64_t s = 0; s < before_.size(); ++s)
    if (stands_for_gradient(s)) before_[s].assign(state(s), state(s) + numel());
  for (uint64_t e = 0; e < expected.size(); ++e)
    if (!near(compressed_[e], expected[e], std::max(std::abs(expected[e]), 1e3)))
      promise(false, "compensate: work[", e, "] is ", compressed_[e], ", the published form ",
              need().form, " gives ", expected[e]);
  promise_finite();
}

void MemoryRig::take(bool dense) {
  std::vector<uint32_t> indices;
  std::vector<float> values;
  sent_.assign(numel(), 0);
  for (uint64_t e = dense ? 0 : step_.index % 3; e < numel(); e += dense ? 1 : 3) {
    // Half of every entry, or every third entry.
    const float sent = dense ? item_.work()[e] / 2 : item_.work()[e];
    indices.push_back(static_cast<uint32_t>(e));
    values.push_back(sent);
    sent_[e] = sent;
    kept_[e] -= sent;
    if (keeps_in_work()) item_.work()[e] -= sent;  // as the core asks for it: nowhere else
  }
  taken_ = dense ? dense_payload(values, 0) : sparse_payload(indices, values, 0);
}

void MemoryRig::record() {
  call("record", [&] { return memory_.record(exec_, step_, items_, {taken_->c()}); });
}

void MemoryRig::refuse() {
  uint64_t& count = taken_->section(0).count;
  if (!keeps_in_work() || taken_->c()->kind != PENSTOCK_PAYLOAD_SPARSE) return;
  auto* index = static_cast<uint32_t*>(taken_->section(0).data);
  auto* value = static_cast<float*>(taken_->section(1).data);
  std::vector<uint32_t> refused_index;
  std::vector<float> refused;
  uint64_t accepted = 0;
  for (uint64_t j = 0; j < count; ++j) {
    if (j % 3 == 1) {
      refused_index.push_back(index[j]);
      refused.push_back(value[j]);
      kept_[index[j]] += value[j];
      sent_[index[j]] = 0;
    } else {
      index[accepted] = index[j];
      value[accepted++] = value[j];
    }
  }
  count = taken_->section(1).count = accepted;
  const PayloadPointer payload = sparse_payload(refused_index, refused, 0);
  call("give_back", [&] { return memory_.give_back(exec_, step_, items_, {payload->c()}); });
}

void MemoryRig::give_back() {
  // If work is not a state, no value was taken out of work, and none returns.
  if (!keeps_in_work()) taken_->make_absent();
  call("give_back", [&] { return memory_.give_back(exec_, step_, items_, {taken_->c()}); });
  kept_ = compressed_;
}

void MemoryRig::forget() {
  item_.memory_states.put_back(states_before_);
}

void MemoryRig::finish() {
  call("finish", [&] { return memory_.finish(exec_, step_, items_); });
}

void MemoryRig::promise_kept() const {
  for (uint64_t e = 0; keeps_in_work() && e < kept_.size(); ++e)  // otherwise drain shows it
    if (!near(item_.work()[e], kept_[e], std::abs(compressed_[e])))
      promise(false, "work[", e, "] is ", item_.work()[e], " after step ", step_.index, ", ",
              compressed_[e], " was compressed and ", kept_[e], " must be left");
}

void MemoryRig::promise_finite() const {
  for (uint64_t e = 0; e < numel(); ++e)
    if (!std::isfinite(item_.work()[e]) || !std::isfinite(item_.grad[e]))
      promise(false, "element ", e, " of work or out is not finite");
}

void MemoryRig::drain() {
  if (!keeps_) return;
  std::fill(item_.grad.begin(), item_.grad.end(), 1.0f);  // drain adds to these values
  call("drain", [&] { return memory_.drain(exec_, items_); });
  for (uint64_t e = 0; shift_ < 0 && e < kept_.size(); ++e)
    if (!near(item_.grad[e], 1 + kept_[e], std::abs(compressed_[e]) + 1))
      promise(false, "drain: out[", e, "] grew by ", item_.grad[e] - 1.0, ", kept was ", kept_[e]);
  for (uint64_t s = 0; s < item_.memory_states.size(); ++s) {
    const SimulatedState& left = item_.memory_states[s];
    promise(
        left.state_class != PENSTOCK_STATE_MASS ||
            std::all_of(left.bytes.begin(), left.bytes.end(), [](auto byte) { return byte == 0; }),
        "drain leaves mass in state '", left.name, "'");
  }
}

bool MemoryRig::stands_for_gradient(uint64_t index) const {
  const penstock_tensor& tensor = item_.memory_states[index].tensor;
  return tensor.dtype == PENSTOCK_FLOAT32 && tensor.numel == numel() &&
         !(keeps_in_work() && need().work_state == index);
}

void MemoryRig::take_shift(const MemoryRig& other) {
  shift_ = other.shift_;
  shift_share_ = other.shift_share_;
}

bool MemoryRig::found_shift() {
  uint64_t largest = 0;
  for (uint64_t e = 0; e < sent_.size(); ++e)
    if (std::abs(sent_[e]) > std::abs(sent_[largest])) largest = e;
  // With few entries, too many states would match.
  if (std::count_if(sent_.begin(), sent_.end(), [](double v) { return v != 0; }) < 16) return false;
  std::string ignored;
  for (uint64_t s = 0; s < before_.size(); ++s) {
    if (before_[s].empty()) continue;
    shift_ = static_cast<int64_t>(s);
    shift_share_ = (state(s)[largest] - before_[s][largest]) / sent_[largest];
    if (shift_share_ > 1e-6 && shift_share_ <= 1 + 1e-5 && shift_moved(false, ignored)) return true;
  }
  shift_ = -1;
  return false;
}

bool MemoryRig::shift_moved(bool is_void, std::string& what) const {
  const float* shift = state(static_cast<uint64_t>(shift_));
  const std::vector<float>& before = before_[static_cast<uint64_t>(shift_)];
  for (uint64_t e = 0; e < sent_.size(); ++e) {
    const double expected = before[e] + (is_void ? 0 : shift_share_ * sent_[e]);
    if (near(shift[e], expected, std::abs(before[e]) + std::abs(sent_[e]))) continue;
    what = sdk::text("the shift (state ", shift_, ") is ", shift[e], " at element ", e,
                     " after step ", step_.index, is_void ? ", which was void" : "", ", expected ",
                     expected, is_void ? ": where it was" : ": moved by what was sent");
    return false;
  }
  return true;
}

void MemoryRig::promise_shift(bool is_void) const {
  std::string what;
  promise(shift_moved(is_void, what), what);
}

void MemoryRig::faulty_give_back() {
  // If work is not a state, no value is taken out of it, and no entries are given back.
  if (!keeps_ || !keeps_in_work() || numel() == 0) return;
  const auto given = [&] { return memory_.give_back(exec_, step_, items_, {taken_->c()}); };
  const auto promise_refused = [&](const std::string& what) {
    Outcome outcome;
    call("give_back of " + what, [&] {
      outcome = given();
      return Outcome();
    });
    promise(!outcome.ok(), "give_back accepts ", what);
  };
  uint64_t& count = taken_->section(0).count;
  auto* index = static_cast<uint32_t*>(taken_->section(0).data);
  index[count - 1] = static_cast<uint32_t>(numel());
  promise_refused("an index out of range");
  index[count - 1] = static_cast<uint32_t>(numel() - 1);
  taken_->section(1).count = count - 1;
  promise_refused("fewer values than indices");
  taken_->make_absent();
  call("give_back of an absent payload, which is legal", given);
}

}  // namespace penstock::test
