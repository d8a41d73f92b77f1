// Changing a set between two steps: switches of the configuration, and new plans from what was
// measured.

#include "core/base/hash.hpp"
#include "core/base/out_of_memory.hpp"
#include "core/bucket/engine.hpp"
#include "core/set/set.hpp"
#include "core/tensor/elements.hpp"

#include <algorithm>
#include <numeric>

namespace penstock {

Status Set::change() {
  const auto next = config_.next_switch_after(step.index - 1);
  if (next && *next == step.index) PENSTOCK_TRY(switch_scheme());
  return observe();
}

// ---- buckets of the frontend ----

Status Set::given_buckets(std::span<const uint32_t> buckets) {
  PENSTOCK_TRY(step_.failure());
  PENSTOCK_TRY(agree_on_buckets(buckets));
  std::vector<uint32_t> before;
  for (const auto& gradient : gradients_) before.push_back(gradient->given_bucket);
  const auto give = [&](std::span<const uint32_t> given) {
    for (size_t i = 0; i < gradients_.size(); ++i) gradients_[i]->given_bucket = given[i];
  };
  give(buckets);
  if (step.index > 0) keep_order_of_last_step();
  refused_together_ = false;
  Status status = replace_works(works_->shared_fitting());
  if (status.ok()) {
    begin_attempt();
    return {};
  }
  give(before);
  status = status.with_context(fmt::format("set '{}', buckets given at step {}", name, step.index));
  if (!refused_together_) {  // as at the end of a step
    services_.run.give_up(status);
    step_.told();
  }
  return status;
}

// In it they lie in the frontend's buckets, as far as can be known.
void Set::keep_order_of_last_step() {
  given_order_.resize(gradients_.size());
  std::iota(given_order_.begin(), given_order_.end(), uint64_t{0});
  std::sort(given_order_.begin(), given_order_.end(),
            [&](uint64_t a, uint64_t b) { return gradients_[a]->place < gradients_[b]->place; });
}

// What one rank finds wrong all hear of.
Status Set::agree_on_buckets(std::span<const uint32_t> buckets) {
  const std::string topic = fmt::format("buckets of set {} at step {}", name, step.index);
  Status fault;
  if ((frontend_flags_ & PENSTOCK_SET_GIVEN_BUCKETS) == 0)
    fault = failed_precondition("set '{}' was not made with given buckets (GIVEN_BUCKETS)", name);
  else if (buckets.size() != gradients_.size())
    fault =
        invalid_argument("set '{}' got buckets for {} gradients, expected one for each of its {}",
                         name, buckets.size(), gradients_.size());
  else if (step_.under_way())
    fault = failed_precondition(
        "set '{}' got other buckets in the middle of step {}: end the step first", name,
        step.index);
  if (!fault.ok()) return services_.control.refuse(topic, fault, group_.ranks());
  std::string text;
  for (size_t i = 0; i < buckets.size(); ++i)
    text += fmt::format("gradient '{}' bucket {}\n", gradients_[i]->name, buckets[i]);
  return services_.control.agree(topic, text, group_.ranks(), meeting_us_);
}

// A switch takes effect at this step: new instances, a new plan; what a replaced memory kept goes
// into the step's gradients.
Status Set::switch_scheme() {
  Result<std::shared_ptr<const Fitting>> fitting =
      unless_out_of_memory([&] { return fit(step.index); });
  Status status = fitting.status();
  if (status.ok()) {
    const Result<FitAdvice> advice = check_fit_of(*fitting.value());
    if (advice.ok()) warn(advice.value());
    status = advice.status();
  }
  PENSTOCK_TRY(agree_to_go_on("switch", status));
  probe_candidates(*fitting.value());
  return replace_works(fitting.value());
}

// Succeeds on every rank or fails on every rank; where it fails, all is as it was.
Status Set::replace_works(const std::shared_ptr<const Fitting>& fitting) {
  PENSTOCK_ASSIGN(Plan plan, agree_on_plan(*fitting));
  if (fitting == works_->shared_fitting() && plan == works_->plan()) {
    works_->explain(std::move(plan.explanation));
    return {};
  }
  // What is queued of residents uses the works that go.
  if (residents_ != nullptr) PENSTOCK_TRY(residents_->drain(services_.limits.end_us));
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

// The route of each gradient.
std::vector<uint32_t> routes_by(const Works& works, size_t n_gradients) {
  std::vector<uint32_t> routes(n_gradients, PENSTOCK_ROUTE_FLAT);
  for (const planning::Bucket& bucket : works.plan().buckets)
    for (const planning::Piece& piece : bucket.pieces) routes[piece.gradient] = bucket.route;
  return routes;
}

// Where the mass of a gradient lies: the owners of what, on a route that has them.
const std::vector<OwnedRange>* owners_of(const Works& works, uint32_t route, size_t gradient) {
  return has_owners(route) ? &works.fitting().ownership(route)[gradient] : nullptr;
}

// Of another plugin, or the same with a compressor that loses nothing any more: another one, or the
// same with other options.
bool keeps_no_more(const ItemRun& item, bool is_of_sums, const Chosen& chosen) {
  const bool was_lossless = (item.for_memory.flags & PENSTOCK_ITEM_LOSSLESS) != 0;
  return std::any_of(chosen.begin(), chosen.end(), [&](const Fitting::Option* option) {
    const MemoryInstance& memory = is_of_sums ? *option->owner_memory : *option->memory;
    return memory.plugin()->record.id != item.memory->plugin()->record.id ||
           (option->is_lossless() && !was_lossless);
  });
}

}  // namespace

// Memories that keep nothing more for a gradient, or at a place of its route that is no more, hand
// over what they keep; the others keep it by name.
Status Set::hand_over(const Works& next) {
  const std::vector<Chosen> chosen = chosen_by(next, gradients_.size());
  const std::vector<uint32_t> before_it = routes_by(*works_, gradients_.size());
  const std::vector<uint32_t> after_it = routes_by(next, gradients_.size());
  // The first coding of `shard` keeps what `flat` does.
  const auto stays = [&](const Coding& coding, size_t gradient) {
    const uint32_t before = before_it[gradient], after = after_it[gradient];
    const auto place = [&](uint32_t route) {
      return coding.leg != 0 || route == PENSTOCK_ROUTE_HIERARCHICAL
                 ? route
                 : uint32_t{PENSTOCK_ROUTE_FLAT};
    };
    if (place(before) != place(after)) return false;
    if (place(before) == PENSTOCK_ROUTE_FLAT) return true;
    return *owners_of(*works_, before, gradient) == *owners_of(next, after, gradient);
  };
  std::vector<ItemRun*> ending;
  std::vector<bool> ends(gradients_.size());  // on some rank: the plan tells it to all
  for (auto& bucket : works_->phase(0))
    for (auto& coding : bucket->codings)
      for (ItemRun& item : coding->items) {
        const size_t gradient = item.gradient->index;
        if (!PENSTOCK_HAS_MEMBER(item.memory->table(), penstock_memory, drain) ||
            (stays(*coding, gradient) && !keeps_no_more(item, coding->alone, chosen[gradient])))
          continue;
        ends[gradient] = true;
        if (item.encodes) ending.push_back(&item);
      }
  if (std::none_of(ends.begin(), ends.end(), std::identity())) return {};
  std::vector<Untouched> before;
  std::vector<bool> had_carry;
  for (const auto& gradient : gradients_) had_carry.push_back(gradient->has_carry);
  const Status drained = engine->run([&]() -> Status {
    for (const ItemRun* item : ending)  // what would be, staged
      if (item->is_on_device())
        return internal("what is kept of gradient '{}' lies on a device, and cannot be handed over",
                        item->gradient->name);
    for (ItemRun* item : ending) before.emplace_back(*item);
    for (size_t i = 0; i < ends.size(); ++i)
      if (ends[i]) carry_of(*gradients_[i]);
    for (ItemRun* item : ending) PENSTOCK_TRY(drain(*item));
    return {};
  });
  const Status all = agree_to_go_on("end of a memory", drained);
  if (all.ok()) return {};
  for (Untouched& item : before) item.restore();
  for (size_t i = 0; i < ends.size(); ++i) gradients_[i]->has_carry = had_carry[i];
  return all;
}

// What is left to add, zeros where nothing is yet.
void Set::carry_of(Gradient& gradient) {
  if (gradient.carry.bytes() == 0) gradient.carry = Buffer(gradient.numel * sizeof(float));
  if (!gradient.has_carry && gradient.numel != 0)
    std::memset(gradient.carry.data(), 0, gradient.carry.bytes());
  gradient.has_carry = true;
}

// Into the gradient's carry, which the next step adds. What an owner keeps is of a sum over ranks:
// it counts as much in the gradient of this rank alone.
Status Set::drain(ItemRun& item) {
  Gradient& gradient = *item.gradient;
  penstock_item temporary = item.for_memory;
  // Where the last step was forgotten, its work is none any more.
  if (item.work_state != nullptr) temporary.work = *item.work_state->c();
  temporary.out.dtype = PENSTOCK_FLOAT32;
  temporary.out.data = gradient.carry.as<float>() + item.range.first;
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
          const MemoryFacts& memory = option->needs.memory_facts;
          return memory.owns_momentum || memory.shifts;
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
    PENSTOCK_TRY(communication->transfer_and_wait(channel(), message)
                     .with_context(fmt::format("what was kept of gradient '{}'", gradient->name)));
    divide(PENSTOCK_FLOAT32, gradient->carry.data(), gradient->numel, world);
  }
  return {};
}

// A carry is gone once a memory has it, or an applied result. Otherwise it waits for the next step:
// the memory that kept it is no more, and nothing else would bring it back. So it does where the
// gradient is forgotten, and the memory with it.
void Set::settle_carries(const std::vector<uint8_t>& forgotten) {
  for (auto& bucket : works_->phase(step.phase)) {
    const Coding& coding = *bucket->codings.front();
    for (const ItemRun& item : coding.items) {
      Gradient& gradient = *item.gradient;
      if (!gradient.has_carry) continue;
      const bool kept = item.work_is != PENSTOCK_WORK_IS_GRAD && coding.compensated &&
                        !item.of->carry_joins_result;
      if (forgotten[gradient.index] == 0 && (kept || !bucket->is_void))
        std::fill_n(gradient.carry.as<float>() + item.range.first, item.range.numel, 0.0f);
      else
        gradient.carry_stays = true;
    }
  }
  for (auto& gradient : gradients_) {
    gradient->has_carry = gradient->has_carry && gradient->carry_stays;
    gradient->carry_stays = false;
  }
}

}  // namespace penstock
