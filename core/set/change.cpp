// Changing a set between two steps: switches of the configuration, and new plans from what was
// measured.

#include "core/base/bytes.hpp"
#include "core/base/hash.hpp"
#include "core/bucket/engine.hpp"
#include "core/set/link_line.hpp"
#include "core/set/set.hpp"
#include "core/tensor/elements.hpp"

#include <algorithm>

namespace penstock {
namespace {

constexpr uint64_t kTagBetweenSteps = (uint64_t{1} << 20) - 1;  // above those of any step

}  // namespace

Status Set::change() {
  const auto next = config_.next_switch_after(step.index - 1);
  if (next && *next == step.index) PENSTOCK_TRY(switch_scheme());
  return observe();
}

// A switch takes effect at this step: new instances, a new plan; what a replaced memory kept goes
// into the step's gradients.
Status Set::switch_scheme() {
  Result<std::shared_ptr<const Fitting>> fitting = fit(step.index);
  Status status = fitting.status();
  if (status.ok()) {
    const Result<FitAdvice> advice = check_fit_of(*fitting.value());
    if (advice.ok()) warn(advice.value());
    status = advice.status();
  }
  PENSTOCK_TRY(agree_to_go_on("switch", status));
  return replace_works(fitting.value());
}

// Succeeds on every rank or fails on every rank; where it fails, all is as it was.
Status Set::replace_works(const std::shared_ptr<const Fitting>& fitting) {
  PENSTOCK_ASSIGN(Plan plan, agree_on_plan(*fitting));
  if (fitting == works_->shared_fitting() && plan == works_->plan()) {
    works_->explain(std::move(plan.explanation));
    return {};
  }
  PENSTOCK_ASSIGN(std::unique_ptr<Works> works, agree_on_works(fitting, std::move(plan)));
  PENSTOCK_TRY(hand_over(*works));
  PENSTOCK_TRY(join_carries(*works));
  install(std::move(works));
  return {};
}

// What one rank found wrong between two steps all hear of, and none goes on.
Status Set::agree_to_go_on(std::string_view topic, const Status& mine) {
  PENSTOCK_ASSIGN(
      const auto texts,
      services_.control.gather(fmt::format("{} of set {} at step {}", topic, name, step.index),
                               mine.message(), group_.ranks(), meeting_us_));
  PENSTOCK_TRY(refused(mine));
  for (size_t r = 0; r < texts.size(); ++r)
    if (!texts[r].empty())
      return refused(peer_failed("set '{}', {} at step {}: rank {} cannot: {}", name, topic,
                                 step.index, group_.ranks()[r], texts[r]));
  return {};
}

// ---- what a replaced memory kept ----

namespace {

// An item's state and its gradient's carry as they were, for the case that handing over fails.
class Untouched {
 public:
  explicit Untouched(ItemRun& item) : gradient_(*item.gradient), had_carry_(gradient_.has_carry) {
    for (const penstock_tensor* state : item.memory_states) {
      const uint64_t bytes = state->numel * dtype_bytes(state->dtype);
      states_.emplace_back(state, Buffer(bytes));
      if (bytes != 0) std::memcpy(states_.back().second.data(), state->data, bytes);
    }
    if (!had_carry_) return;
    carry_ = Buffer(gradient_.carry.bytes());
    std::memcpy(carry_.data(), gradient_.carry.data(), carry_.bytes());
  }
  void restore() {
    for (auto& [state, bytes] : states_)
      if (bytes.bytes() != 0) std::memcpy(state->data, bytes.data(), bytes.bytes());
    gradient_.has_carry = had_carry_;
    if (had_carry_) gradient_.carry = std::move(carry_);
  }

 private:
  Gradient& gradient_;
  const bool had_carry_;
  Buffer carry_;
  std::vector<std::pair<const penstock_tensor*, Buffer>> states_;
};

using Chosen = std::vector<const Fitting::Option*>;

// The options by which a plan compresses each gradient.
std::vector<Chosen> chosen_by(const Works& works, size_t n_gradients) {
  std::vector<Chosen> chosen(n_gradients);
  for (const planning::Bucket& bucket : works.plan().buckets)
    for (const planning::Piece& piece : bucket.pieces)
      chosen[piece.gradient].push_back(&works.fitting().options(piece.gradient)[piece.choice]);
  return chosen;
}

// Of another plugin, or the same with a compressor that loses nothing any more: another one, or the
// same with other options.
bool keeps_no_more(const ItemRun& item, const Chosen& chosen) {
  const bool was_lossless = (item.for_memory.flags & PENSTOCK_ITEM_LOSSLESS) != 0;
  return std::any_of(chosen.begin(), chosen.end(), [&](const Fitting::Option* option) {
    return option->memory->plugin()->record.id != item.memory->plugin()->record.id ||
           (option->is_lossless() && !was_lossless);
  });
}

}  // namespace

// Memories that keep nothing more for a gradient hand over what they keep; the others keep it by
// name.
Status Set::hand_over(const Works& next) {
  const std::vector<Chosen> chosen = chosen_by(next, gradients_.size());
  std::vector<ItemRun*> ending;
  for (auto& bucket : works_->phase(0))
    for (ItemRun& item : bucket->items)
      if (keeps_no_more(item, chosen[item.gradient->index]) &&
          PENSTOCK_HAS_MEMBER(item.memory->table(), penstock_memory, drain))
        ending.push_back(&item);
  if (ending.empty()) return {};  // on every rank, as the plan is the same
  std::vector<Untouched> before;
  const Status drained = engine->run([&]() -> Status {
    for (ItemRun* item : ending) before.emplace_back(*item);
    for (ItemRun* item : ending) PENSTOCK_TRY(drain(*item));
    return {};
  });
  const Status all = agree_to_go_on("end of a memory", drained);
  if (!all.ok())
    for (Untouched& item : before) item.restore();
  return all;
}

// Into the gradient's carry, which the next step adds.
Status Set::drain(ItemRun& item) {
  Gradient& gradient = *item.gradient;
  if (gradient.carry.bytes() == 0) gradient.carry = Buffer(gradient.numel * sizeof(float));
  if (!gradient.has_carry) std::memset(gradient.carry.data(), 0, gradient.carry.bytes());
  gradient.has_carry = true;
  penstock_item temporary = item.for_memory;
  temporary.out.dtype = PENSTOCK_FLOAT32;
  temporary.out.data = gradient.carry.as<float>() + item.piece.first;
  const penstock_item* items[] = {&temporary};
  const PluginCall noted(calls, "memory", item.memory->name(), "drain", gradient.name, name,
                         step.index);
  return from_c(item.memory->table()->drain(item.memory->self(), &exec, items, 1));
}

// A memory with momentum would apply a carry 1 / (1 - m) times. There it goes round the memory, to
// the result of a step, for which every rank needs the same one: the mean. A mean stays one when it
// is joined again.
Status Set::join_carries(const Works& next) {
  const std::vector<Chosen> chosen = chosen_by(next, gradients_.size());
  for (auto& gradient : gradients_) {
    const Chosen& options = chosen[gradient->index];
    if (!gradient->has_carry || gradient->numel == 0 || world == 1 ||
        std::none_of(options.begin(), options.end(), [](const Fitting::Option* option) {
          return option->needs.memory_facts.owns_momentum;
        }))
      continue;
    penstock_message message{};
    message.struct_size = sizeof message;
    message.pattern = PENSTOCK_ALL_REDUCE;
    message.reduction = PENSTOCK_REDUCE_SUM;
    message.dtype = PENSTOCK_FLOAT32;
    message.send = message.receive = gradient->carry.data();
    message.count = gradient->numel;
    message.deadline_us = limit_us;
    message.tag = kTagBetweenSteps;
    PENSTOCK_TRY(communication->transfer_and_wait(channel, message)
                     .with_context(fmt::format("what was kept of gradient '{}'", gradient->name)));
    divide(PENSTOCK_FLOAT32, gradient->carry.data(), gradient->numel, world);
  }
  return {};
}

// A carry is gone once a memory has it, or an applied result. Otherwise it waits for the next step:
// the memory that kept it is no more, and nothing else would bring it back.
void Set::settle_carries(bool applied) {
  for (auto& bucket : works_->phase(step.phase))
    for (ItemRun& item : bucket->items) {
      Gradient& gradient = *item.gradient;
      if (!gradient.has_carry) continue;
      const bool kept =
          item.work_is != PENSTOCK_WORK_IS_GRAD && bucket->compensated && !item.carry_joins_result;
      const bool in_result = !bucket->is_void && applied;
      if (kept || in_result)
        std::fill_n(gradient.carry.as<float>() + item.piece.first, item.piece.numel, 0.0f);
      else
        gradient.carry_stays = true;
    }
  for (auto& gradient : gradients_) {
    gradient->has_carry = gradient->has_carry && gradient->carry_stays;
    gradient->carry_stays = false;
  }
}

// Every so many steps rank 0's scheduler sees what was measured on all ranks, and may ask for a new
// plan.
Status Set::observe() {
  SchedulerInstance& scheduler = *works_->fitting().scheduler();
  const uint32_t every = scheduler.traits().observe_every;
  if (every == 0 || step.index % every != 0 ||
      !PENSTOCK_HAS_MEMBER(scheduler.table(), penstock_scheduler, observe))
    return {};
  std::string mine;
  ByteWriter writer(mine);
  for (double number : measured_.to_numbers()) writer.put(number);
  PENSTOCK_ASSIGN(auto texts, services_.control.gather(
                                  fmt::format("times of set {} at step {}", name, step.index), mine,
                                  group_.ranks(), meeting_us_));
  std::vector<std::vector<double>> ranks;
  for (const std::string& text : texts) {
    if (text.size() != mine.size())
      return mismatch("set '{}': the measured times of the ranks differ in length", name);
    ByteReader reader(text);
    auto& numbers = ranks.emplace_back(text.size() / sizeof(double));
    for (double& number : numbers) number = reader.get<double>();
  }
  const MeasuredTimes::Means means = measured_.join(ranks);
  ready_us_ = means.slowest_ready_us;
  backward_us_ = means.slowest_backward_us;
  uint32_t decision = PENSTOCK_KEEP_PLAN;
  Status status;
  if (rank == 0) {
    penstock_measurement c{};
    c.struct_size = sizeof c;
    c.step = step.index;
    c.n_steps = means.n_steps;
    c.step_us = means.step_us;
    c.backward_us = means.backward_us;
    c.exposed_us = means.exposed_us;
    c.ready_us = means.ready_us.data();
    c.n_gradients = means.ready_us.size();
    c.exchange_us = means.exchange_us.data();
    c.n_buckets = means.exchange_us.size();
    c.rank_backward_us = means.rank_backward_us.data();
    c.world = means.rank_backward_us.size();
    status = from_c(scheduler.table()->observe(scheduler.self(), &c, &decision));
  }
  const std::string verdict = !status.ok()                         ? "error"
                              : decision == PENSTOCK_MAKE_NEW_PLAN ? "plan"
                                                                   : "keep";
  PENSTOCK_ASSIGN(auto verdicts, services_.control.gather(
                                     fmt::format("verdict of set {} at step {}", name, step.index),
                                     verdict, group_.ranks(), meeting_us_));
  PENSTOCK_TRY(refused(status));
  if (verdicts.front() == "error")
    return refused(peer_failed("set '{}': the scheduler of rank {} failed; its error says why",
                               name, group_.ranks().front()));
  measured_.begin(gradients_.size(), works_->phase(0).size());
  if (verdicts.front() != "plan") return {};
  if (links_.empty()) PENSTOCK_TRY(measure_links());
  return replace_works(works_->shared_fitting());
}

// The line of rank 0 counts: only it plans, and its scheduler is the only one that reads this.
Status Set::measure_links() {
  const Traffic before = traffic();
  PENSTOCK_ASSIGN(const planning::LinkEntry link,
                  measure_link(*communication, *channel, limit_us, kTagBetweenSteps));
  // What measuring took is not the training's traffic.
  traffic_at_start_ += traffic() - before;
  links_ = {link};
  return {};
}

}  // namespace penstock
