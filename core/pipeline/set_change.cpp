// Changing a set between two steps: switches of the configuration, and new plans from what was
// measured.

#include "core/base/bytes.hpp"
#include "core/base/hash.hpp"
#include "core/pipeline/engine.hpp"
#include "core/pipeline/runtime.hpp"
#include "core/pipeline/set.hpp"

#include <algorithm>

namespace penstock {

// A switch takes effect at this step: new instances, a new plan; what a replaced memory kept goes
// into the step's gradients.
Status Set::replan() {
  // The buckets that hand over point into these.
  const auto compressors = std::move(compressors_);
  const auto memories = std::move(memories_);
  const auto plan_next = [&]() -> Result<Plan> {
    PENSTOCK_TRY(adopt_scheme(step.index));
    PENSTOCK_TRY(examine_gradients());
    PENSTOCK_ASSIGN(const FitAdvice advice, check_fit_of_set());
    warn(advice);
    return agree_on_plan();
  };
  Result<Plan> plan = plan_next();
  if (plan.ok()) return replace_plan(std::move(plan.value()));
  buckets_.clear();
  return plan.status();
}

Status Set::replace_plan(Plan plan) {
  const Status drained = drain_replaced(plan);
  buckets_.clear();  // before the new ones take memory, and before what they point into is gone
  PENSTOCK_TRY(drained);
  PENSTOCK_ASSIGN(Buckets buckets, make_buckets(plan));
  install(std::move(plan), std::move(buckets));
  return {};
}

// Memories that keep nothing more for a gradient hand over what they keep; the others keep it by
// name.
Status Set::drain_replaced(const Plan& next) {
  std::vector<std::vector<const Option*>> chosen(gradients_.size());
  for (const BucketPlan& bucket : next.buckets)
    for (const PiecePlan& piece : bucket.pieces)
      chosen[piece.gradient].push_back(&options_[piece.gradient][piece.choice]);
  return engine->run([&]() -> Status {
    for (auto& bucket : buckets_[0])
      for (ItemRun& item : bucket->items)
        if (keeps_no_more(item, chosen[item.gradient->index])) PENSTOCK_TRY(drain(item));
    return {};
  });
}

// Of another plugin, or the same with a compressor that loses nothing any more: another one, or the
// same with other options.
bool Set::keeps_no_more(const ItemRun& item, const std::vector<const Option*>& chosen) {
  const bool was_lossless = (item.for_memory.flags & PENSTOCK_ITEM_LOSSLESS) != 0;
  return std::any_of(chosen.begin(), chosen.end(), [&](const Option* option) {
    const bool is_lossless = (option->compressor_facts.need_flags & PENSTOCK_NEED_LOSSLESS) != 0;
    return option->memory->plugin()->record.id != item.memory->plugin()->record.id ||
           (is_lossless && !was_lossless);
  });
}

// Into the gradient's carry, which the next step adds.
Status Set::drain(ItemRun& item) {
  if (!PENSTOCK_HAS_MEMBER(item.memory->table(), penstock_memory, drain)) return {};
  Gradient& gradient = *item.gradient;
  if (gradient.carry.bytes() == 0) gradient.carry = Buffer(gradient.numel * sizeof(float));
  if (!gradient.has_carry) std::memset(gradient.carry.data(), 0, gradient.carry.bytes());
  gradient.has_carry = true;
  penstock_item temporary = item.for_memory;
  temporary.out.dtype = PENSTOCK_FLOAT32;
  temporary.out.data = gradient.carry.as<float>() + item.piece.first;
  const penstock_item* items[] = {&temporary};
  return from_c(item.memory->table()->drain(item.memory->self(), &exec, items, 1));
}

// Replicated state must have the same bits on all ranks; with runtime.hash_replicated_every that is
// compared.
Status Set::compare_replicated() {
  const uint64_t every = runtime_.config().runtime().hash_replicated_every;
  if (every == 0 || step.index % every != 0) return {};
  return runtime_.control().agree(
      fmt::format("replicated state of set {} at step {}", name, step.index),
      hash_text(store_.hash_replicated()), ranks_, deadline_us);
}

// Every so many steps rank 0's scheduler sees what was measured on all ranks, and may ask for a new
// plan.
Status Set::observe() {
  const uint32_t every = scheduler_->traits().observe_every;
  if (every == 0 || step.index % every != 0 ||
      !PENSTOCK_HAS_MEMBER(scheduler_->table(), penstock_scheduler, observe))
    return {};
  std::string mine;
  ByteWriter writer(mine);
  for (double number : measured_.to_numbers()) writer.put(number);
  PENSTOCK_ASSIGN(auto texts, runtime_.control().gather(
                                  fmt::format("times of set {} at step {}", name, step.index), mine,
                                  ranks_, deadline_us));
  std::vector<std::vector<double>> ranks;
  for (const std::string& text : texts) {
    if (text.size() != mine.size())
      return mismatch("set '{}': the measured times of the ranks differ in length", name);
    ByteReader reader(text);
    auto& numbers = ranks.emplace_back(text.size() / sizeof(double));
    for (double& number : numbers) number = reader.get<double>();
  }
  const MeasuredTimes::Means means = measured_.join(ranks);
  ready_us_ = means.ready_us;
  backward_us_ = means.backward_us;
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
    status = from_c(scheduler_->table()->observe(scheduler_->self(), &c, &decision));
  }
  const std::string verdict = !status.ok()                         ? "error"
                              : decision == PENSTOCK_MAKE_NEW_PLAN ? "plan"
                                                                   : "keep";
  PENSTOCK_ASSIGN(auto verdicts, runtime_.control().gather(
                                     fmt::format("verdict of set {} at step {}", name, step.index),
                                     verdict, ranks_, deadline_us));
  PENSTOCK_TRY(status);
  if (verdicts.front() == "error")
    return peer_failed("set '{}': the scheduler of rank {} failed; its error says why", name,
                       ranks_.front());
  measured_.begin(gradients_.size(), buckets_[0].size());
  if (verdicts.front() != "plan") return {};
  if (links_.empty()) PENSTOCK_TRY(measure_links());
  PENSTOCK_ASSIGN(Plan plan, agree_on_plan());
  return plan == plan_ ? Status() : replace_plan(std::move(plan));
}

// Time of a message = alpha + beta * bytes, from a small and a large sum; the median of a few.
Status Set::measure_links() {
  constexpr uint64_t kSmall = 16, kLarge = 1u << 18;  // elements
  constexpr int kRepeats = 5;
  constexpr uint64_t kMeasureTag = (uint64_t{1} << 20) - 1;  // above those of any step
  Buffer data(kLarge * sizeof(float));
  const auto median = [&](uint64_t count, double& median_us) -> Status {
    std::vector<double> times;
    for (int i = 0; i < kRepeats; ++i) {
      penstock_message message{};
      message.struct_size = sizeof message;
      message.pattern = PENSTOCK_ALL_REDUCE;
      message.reduction = PENSTOCK_REDUCE_SUM;
      message.dtype = PENSTOCK_FLOAT32;
      message.send = message.receive = data.data();
      message.count = count;
      message.deadline_us = deadline_us;
      message.tag = kMeasureTag;
      const uint64_t start = now_us();
      PENSTOCK_TRY(communication->exchange_and_wait(channel, message));
      times.push_back(double(now_us() - start));
    }
    std::nth_element(times.begin(), times.begin() + kRepeats / 2, times.end());
    median_us = times[kRepeats / 2];
    return {};
  };
  const uint64_t bytes_before = channel->bytes_sent.load(),
                 messages_before = channel->messages_sent.load();
  double small = 0, large = 0;
  PENSTOCK_TRY(median(kSmall, small));
  PENSTOCK_TRY(median(kLarge, large));
  // What measuring took is not the training's traffic.
  bytes_at_start_ += channel->bytes_sent.load() - bytes_before;
  messages_at_start_ += channel->messages_sent.load() - messages_before;
  LinkFacts link;
  link.beta_us_per_byte =
      std::max(0.0, (large - small) / double((kLarge - kSmall) * sizeof(float)));
  link.alpha_us = std::max(0.0, small - link.beta_us_per_byte * double(kSmall * sizeof(float)));
  // The line of rank 0 counts: only it plans, and its scheduler is the only one that reads this.
  links_ = {link, link};
  return {};
}

}  // namespace penstock
