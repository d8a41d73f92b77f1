#include "tools/penstock/check_memory_rank.hpp"

#include <algorithm>
#include <cmath>

namespace penstock::command {

namespace {

// Sums of a few float32 values, in another order than ours.
bool near(double value, double expected, double magnitude) {
  return std::abs(value - expected) <= 1e-5 * magnitude + 1e-6;
}

}  // namespace

std::vector<double> MemoryRank::expected_work() const {
  if (need().form == PENSTOCK_FORM_NONE || need().work_is != PENSTOCK_WORK_IS_STATE) return {};
  const auto* grad = grad_.as<float>();
  std::vector<double> expected(work(), work() + shape_.numel());
  for (uint64_t e = 0; e < expected.size(); ++e) {
    const double g = grad[e] / step_.grad_scale;
    if (need().form == PENSTOCK_FORM_AFFINE) {
      expected[e] = need().beta * expected[e] + need().gamma * g;
      continue;
    }
    const double u = states_[need().momentum_state].as<float>()[e];
    expected[e] +=
        need().form == PENSTOCK_FORM_HEAVY_BALL ? need().beta * u + g : need().beta * (u + g) + g;
  }
  return expected;
}

Status MemoryRank::compensate(uint64_t index, Input input, double grad_scale) {
  step_.index = index;
  step_.grad_scale = grad_scale;
  auto* grad = grad_.as<float>();
  fill_input(input, 0, index, 0, grad, shape_.numel());
  for (uint64_t e = 0; e < shape_.numel(); ++e) grad[e] *= static_cast<float>(grad_scale);
  const penstock_memory& table = *instance_->table();
  doing(fmt::format("compensate: {} floats, {}, step {}", shape_.label, input_name(input), index));
  GuardedBuffer scalars(need().n_scalars * sizeof(float));
  if (need().n_scalars > 0)
    PENSTOCK_TRY(
        from_c(table.measure(instance_->self(), &exec_, &step_, items_, 1, scalars.as<float>())));
  const std::vector<double> expected = expected_work();
  PENSTOCK_TRY(from_c(table.compensate(instance_->self(), &exec_, &step_, items_, 1,
                                       need().n_scalars > 0 ? scalars.as<float>() : nullptr))
                   .with_context("compensate"));
  if (!scalars.intact()) return internal("measure wrote beyond {} scalars", need().n_scalars);
  PENSTOCK_TRY(check_walls().with_context("compensate"));
  compressed_.assign(work(), work() + shape_.numel());
  kept_ = compressed_;
  before_.assign(states_.size(), {});
  for (size_t s = 0; s < states_.size(); ++s)
    if (stands_for_gradient(s))
      before_[s].assign(states_[s].as<float>(), states_[s].as<float>() + shape_.numel());
  for (uint64_t e = 0; e < expected.size(); ++e)
    if (!near(compressed_[e], expected[e], std::max(std::abs(expected[e]), 1e3)))
      return internal("compensate: work[{}] is {}, the published form {} gives {}", e,
                      compressed_[e], need().form, expected[e]);
  return check_finite();
}

Status MemoryRank::take(bool dense) {
  dense_ = dense;
  taken_.plan(dense ? dense_round_ : sparse_round_, 0);
  PayloadStorage& payload = taken_.storage();
  payload.c()->kind = dense ? PENSTOCK_PAYLOAD_DENSE : PENSTOCK_PAYLOAD_SPARSE;
  auto* values = static_cast<float*>(payload.section(dense ? 0 : 1).data);
  uint64_t count = 0;
  sent_.assign(shape_.numel(), 0);
  for (uint64_t e = dense ? 0 : step_.index % 3; e < shape_.numel(); e += dense ? 1 : 3) {
    if (!dense) static_cast<uint32_t*>(payload.section(0).data)[count] = static_cast<uint32_t>(e);
    const float sent = dense ? work()[e] / 2 : work()[e];  // half of everything, or all of a third
    values[count++] = sent;
    sent_[e] = sent;
    kept_[e] -= sent;
    if (keeps_in_work()) work()[e] -= sent;  // as the core asks for it: nowhere else
  }
  for (size_t s = 0; s < payload.size(); ++s) payload.section(s).count = count;
  return {};
}

Status MemoryRank::record() {
  if (!PENSTOCK_HAS_MEMBER(instance_->table(), penstock_memory, record)) return {};
  doing(fmt::format("record: {} floats", shape_.label));
  const penstock_payload* taken[] = {taken_.c()};
  PENSTOCK_TRY(
      from_c(instance_->table()->record(instance_->self(), &exec_, &step_, items_, 1, taken))
          .with_context("record"));
  return check_walls().with_context("record");
}

Status MemoryRank::give_back() {
  if (!PENSTOCK_HAS_MEMBER(instance_->table(), penstock_memory, give_back)) return {};
  doing(fmt::format("give_back: {} floats", shape_.label));
  // Nothing left work where it is no state: pairs without entries say that the step had no effect.
  GuardedPayload no_pairs;
  no_pairs.plan(sparse_round_, 0);
  no_pairs.c()->kind = PENSTOCK_PAYLOAD_SPARSE;
  const penstock_payload* payloads[] = {keeps_in_work() ? taken_.c() : no_pairs.c()};
  PENSTOCK_TRY(
      from_c(instance_->table()->give_back(instance_->self(), &exec_, &step_, items_, 1, payloads))
          .with_context("give_back"));
  kept_ = compressed_;
  return check_walls().with_context("give_back");
}

Status MemoryRank::finish() {
  if (!PENSTOCK_HAS_MEMBER(instance_->table(), penstock_memory, finish)) return {};
  doing(fmt::format("finish: {} floats", shape_.label));
  PENSTOCK_TRY(from_c(instance_->table()->finish(instance_->self(), &exec_, &step_, items_, 1))
                   .with_context("finish"));
  return check_walls().with_context("finish");
}

Status MemoryRank::check_kept() const {
  if (need().work_is != PENSTOCK_WORK_IS_STATE) return {};  // drain will tell
  for (uint64_t e = 0; e < kept_.size(); ++e)
    if (!near(work()[e], kept_[e], std::abs(compressed_[e])))
      return internal("work[{}] is {} after step {}, {} was compressed and {} must be left", e,
                      work()[e], step_.index, compressed_[e], kept_[e]);
  return {};
}

Status MemoryRank::check_finite() const {
  for (uint64_t e = 0; e < shape_.numel(); ++e)
    if (!std::isfinite(work()[e]) || !std::isfinite(grad_.as<float>()[e]))
      return internal("element {} of work or out is not finite", e);
  return {};
}

Status MemoryRank::drain() {
  if (!keeps_) return {};
  auto* out = grad_.as<float>();
  std::fill_n(out, shape_.numel(), 1.0f);  // drain adds to what is there
  doing(fmt::format("drain: {} floats", shape_.label));
  PENSTOCK_TRY(from_c(instance_->table()->drain(instance_->self(), &exec_, items_, 1))
                   .with_context("drain"));
  PENSTOCK_TRY(check_walls().with_context("drain"));
  for (uint64_t e = 0; shift_ < 0 && e < kept_.size(); ++e)
    if (!near(out[e], 1 + kept_[e], std::abs(compressed_[e]) + 1))
      return internal("drain: out[{}] grew by {}, kept was {}", e, out[e] - 1.0, kept_[e]);
  for (size_t s = 0; s < states_.size(); ++s) {
    const std::string bytes = states_[s].copy();
    if (classes_[s] == PENSTOCK_STATE_MASS &&
        std::any_of(bytes.begin(), bytes.end(), [](char c) { return c != 0; }))
      return internal("drain leaves mass in state {}", s);
  }
  return {};
}

bool MemoryRank::stands_for_gradient(size_t state) const {
  return tensors_[state].dtype == PENSTOCK_FLOAT32 && tensors_[state].numel == shape_.numel() &&
         !(keeps_in_work() && need().work_state == state);
}

bool MemoryRank::found_shift() {
  uint64_t largest = 0;
  for (uint64_t e = 0; e < sent_.size(); ++e)
    if (std::abs(sent_[e]) > std::abs(sent_[largest])) largest = e;
  // Of a few entries too many states look alike.
  const auto n_sent = std::count_if(sent_.begin(), sent_.end(), [](double v) { return v != 0; });
  if (n_sent < 16) return false;
  for (size_t s = 0; s < states_.size(); ++s) {
    if (before_[s].empty()) continue;
    shift_ = static_cast<int>(s);
    shift_share_ = (states_[s].as<float>()[largest] - before_[s][largest]) / sent_[largest];
    if (shift_share_ > 1e-6 && shift_share_ <= 1 + 1e-5 && check_shift(false).ok()) return true;
  }
  shift_ = -1;
  return false;
}

Status MemoryRank::check_shift(bool given_back) const {
  const auto* shift = states_[static_cast<size_t>(shift_)].as<float>();
  const std::vector<float>& before = before_[static_cast<size_t>(shift_)];
  for (uint64_t e = 0; e < sent_.size(); ++e) {
    const double expected = before[e] + (given_back ? 0 : shift_share_ * sent_[e]);
    if (!near(shift[e], expected, std::abs(before[e]) + std::abs(sent_[e])))
      return internal("the shift (state {}) is {} at element {} after step {}{}, expected {}: {}",
                      shift_, shift[e], e, step_.index, given_back ? " was given back" : "",
                      expected, given_back ? "where it was" : "moved by what was sent");
  }
  return {};
}

Status MemoryRank::faulty_give_back() {
  // Where work is no state nothing is ever taken out of it, and no entries are given back.
  if (!keeps_ || !keeps_in_work() || shape_.numel() == 0) return {};
  PayloadStorage& payload = taken_.storage();
  const penstock_payload* payloads[] = {taken_.c()};
  const auto refused = [&](std::string_view what) -> Status {
    doing(fmt::format("give_back of {}: {} floats", what, shape_.label));
    const Status status = from_c(
        instance_->table()->give_back(instance_->self(), &exec_, &step_, items_, 1, payloads));
    PENSTOCK_TRY(check_walls().with_context(fmt::format("give_back of {}", what)));
    return status.ok() ? internal("give_back accepts {}", what) : Status();
  };
  auto* index = static_cast<uint32_t*>(payload.section(0).data);
  index[payload.section(0).count - 1] = static_cast<uint32_t>(shape_.numel());
  PENSTOCK_TRY(refused("an index out of range"));
  index[payload.section(0).count - 1] = static_cast<uint32_t>(shape_.numel() - 1);
  payload.section(1).count = payload.section(0).count - 1;
  PENSTOCK_TRY(refused("fewer values than indices"));
  payload.absent();
  return from_c(
             instance_->table()->give_back(instance_->self(), &exec_, &step_, items_, 1, payloads))
      .with_context("absent payloads are legal");
}

Status MemoryRank::check_walls() const {
  for (const GuardedBuffer* buffer : {&grad_, &scratch_work_})
    if (!buffer->intact()) return internal("wrote beside work or out");
  for (size_t s = 0; s < states_.size(); ++s)
    if (!states_[s].intact()) return internal("wrote beside state {}", s);
  return {};
}

}  // namespace penstock::command
