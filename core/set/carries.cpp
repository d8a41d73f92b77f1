#include "core/set/carries.hpp"

#include "core/bucket/engine.hpp"
#include "core/bucket/load.hpp"
#include "core/tensor/elements.hpp"

#include <algorithm>
#include <functional>

namespace penstock {
namespace {

// A copy of an item's state and of its gradient's carry, to restore them if handing over fails.
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

using Chosen = std::vector<const BoundScheme::Option*>;

// The options by which a plan compresses each gradient.
std::vector<Chosen> chosen_by(const CompiledPlan& compiled, size_t n_gradients) {
  std::vector<Chosen> chosen(n_gradients);
  for (const planning::Bucket& bucket : compiled.plan().buckets)
    for (const planning::Piece& piece : bucket.pieces)
      chosen[piece.gradient].push_back(
          &compiled.bound_scheme().options(piece.gradient)[piece.choice]);
  return chosen;
}

// The route of each gradient.
std::vector<uint32_t> routes_by(const CompiledPlan& compiled, size_t n_gradients) {
  std::vector<uint32_t> routes(n_gradients, PENSTOCK_ROUTE_FLAT);
  for (const planning::Bucket& bucket : compiled.plan().buckets)
    for (const planning::Piece& piece : bucket.pieces) routes[piece.gradient] = bucket.route;
  return routes;
}

// The ranks that keep the mass of a gradient: the owners of its ranges, on a route with owners.
const std::vector<OwnedRange>* owners_of(const CompiledPlan& compiled, uint32_t route,
                                         size_t gradient) {
  return has_owners(route) ? &compiled.bound_scheme().ownership(route)[gradient] : nullptr;
}

// Whether the item's memory keeps nothing any more: the next memory is another plugin, or the next
// compressor is lossless.
bool keeps_no_more(const ItemRun& item, bool is_of_sums, const Chosen& chosen) {
  const bool was_lossless = (item.for_memory.flags & PENSTOCK_ITEM_LOSSLESS) != 0;
  return std::any_of(chosen.begin(), chosen.end(), [&](const BoundScheme::Option* option) {
    const MemoryInstance& memory = is_of_sums ? *option->owner_memory : *option->memory;
    return memory.plugin()->record.id != item.memory->plugin()->record.id ||
           (option->is_lossless() && !was_lossless);
  });
}

// Whether the state of an item stays on its ranks. The first coding of `shard` keeps the state of
// an item where `flat` keeps it.
class Places {
 public:
  Places(const CompiledPlan& now, const CompiledPlan& next, size_t n_gradients)
      : now_(now),
        next_(next),
        before_(routes_by(now, n_gradients)),
        after_(routes_by(next, n_gradients)) {}
  bool stay(const Coding& coding, size_t gradient) const {
    const uint32_t before = before_[gradient], after = after_[gradient];
    if (place(coding, before) != place(coding, after)) return false;
    if (place(coding, before) == PENSTOCK_ROUTE_FLAT) return true;
    return *owners_of(now_, before, gradient) == *owners_of(next_, after, gradient);
  }

 private:
  static uint32_t place(const Coding& coding, uint32_t route) {
    return coding.leg != 0 || adds_in_hosts(route) ? route : uint32_t{PENSTOCK_ROUTE_FLAT};
  }
  const CompiledPlan &now_, &next_;
  const std::vector<uint32_t> before_, after_;  // the route of each gradient
};

// Makes a carry of zeros if the gradient has no carry.
void begin_carry(Gradient& gradient) {
  if (gradient.carry.bytes() == 0) gradient.carry = Buffer(gradient.numel * sizeof(float));
  if (!gradient.has_carry && gradient.numel != 0)
    std::memset(gradient.carry.data(), 0, gradient.carry.bytes());
  gradient.has_carry = true;
}

// Whether a carry bypasses the memory: a memory with momentum m would apply it 1 / (1 - m) times.
bool goes_round(const Chosen& options) {
  return std::any_of(options.begin(), options.end(), [](const BoundScheme::Option* option) {
    const MemoryFacts& memory = option->needs.memory_facts;
    return memory.owns_momentum || memory.shifts;
  });
}

std::string_view bytes_of(const Gradient& gradient) {
  return gradient.has_carry ? std::string_view(gradient.carry.as<char>(), gradient.carry.bytes())
                            : std::string_view();
}

}  // namespace

// ---- between two steps ----

// The items whose memory ends on this rank. Sets `ends` for gradients whose memory ends on some
// rank; all ranks derive this from the plan.
std::vector<ItemRun*> Carries::ending_items(CompiledPlan& now, const CompiledPlan& next,
                                            std::vector<bool>& ends) const {
  const std::vector<Chosen> chosen = chosen_by(next, gradients_.size());
  const Places places(now, next, gradients_.size());
  std::vector<ItemRun*> ending;
  for (auto& bucket : now.phase(0))
    for (auto& coding : bucket->codings)
      for (ItemRun& item : coding->items) {
        const size_t gradient = item.gradient->index;
        if (!PENSTOCK_HAS_MEMBER(item.memory->table(), penstock_memory, drain) ||
            (places.stay(*coding, gradient) &&
             !keeps_no_more(item, coding->of_sums, chosen[gradient])))
          continue;
        ends[gradient] = true;
        if (item.encodes) ending.push_back(&item);
      }
  return ending;
}

Status Carries::hand_over(CompiledPlan& now, const CompiledPlan& next,
                          const std::function<Status(const Status&)>& agree) {
  std::vector<bool> ends(gradients_.size());
  const std::vector<ItemRun*> ending = ending_items(now, next, ends);
  if (std::none_of(ends.begin(), ends.end(), std::identity())) return {};
  std::vector<Untouched> before;
  std::vector<bool> had_carry;
  for (const auto& gradient : gradients_) had_carry.push_back(gradient->has_carry);
  const Status drained = set_.engine->run([&]() -> Status {
    for (const ItemRun* item : ending)  // such gradients should have been staged
      if (!item->place().works_at_once())
        return internal(
            "the kept state of gradient '{}' lies on a device and cannot be handed over",
            item->gradient->name);
    for (ItemRun* item : ending) before.emplace_back(*item);
    return drain_all(ending, ends);
  });
  const Status all = agree(drained);
  if (all.ok()) return {};
  for (Untouched& item : before) item.restore();
  for (size_t i = 0; i < ends.size(); ++i) gradients_[i]->has_carry = had_carry[i];
  return all;
}

// [engine]
Status Carries::drain_all(const std::vector<ItemRun*>& ending, const std::vector<bool>& ends) {
  for (size_t i = 0; i < ends.size(); ++i)
    if (ends[i]) begin_carry(*gradients_[i]);
  for (ItemRun* item : ending) PENSTOCK_TRY(drain(*item));
  return {};
}

// Drains a memory into the gradient's carry, which the next step adds. An owner's memory keeps a
// part of a sum over ranks: it counts as much in the gradient of this rank alone.
Status Carries::drain(ItemRun& item) {
  Gradient& gradient = *item.gradient;
  penstock_item temporary = item.for_memory;
  // If the last step was forgotten, its `work` is not valid any more.
  if (item.work_state != nullptr) temporary.work = *item.work_state->c();
  temporary.out.dtype = PENSTOCK_FLOAT32;
  temporary.out.data = gradient.carry.as<float>() + item.range.first;
  const penstock_item* items[] = {&temporary};
  const PluginCall noted(set_.calls, "memory", item.memory->name(), "drain", gradient.name,
                         set_.name, set_.step.index);
  return from_c(item.memory->table()->drain(item.memory->self(), &set_.host.exec(), items, 1));
}

// Joining a carry again does not change it: the mean of equal carries is that carry.
Status Carries::join(const CompiledPlan& next) {
  const std::vector<Chosen> chosen = chosen_by(next, gradients_.size());
  for (auto& gradient : gradients_) {
    if (!gradient->has_carry || gradient->numel == 0 || set_.world == 1 ||
        !goes_round(chosen[gradient->index]))
      continue;
    penstock_message message{};
    message.struct_size = sizeof message;
    message.pattern = PENSTOCK_ALL_REDUCE;
    message.reduction = PENSTOCK_REDUCE_SUM;
    message.dtype = PENSTOCK_FLOAT32;
    message.send = message.receive = gradient->carry.data();
    message.count = gradient->numel;
    message.deadline_us = set_.limit_us;
    message.tag = SetContext::kTagBetweenSteps;
    PENSTOCK_TRY(set_.communication->transfer_and_wait(set_.channel(), message)
                     .with_context(fmt::format("the kept state of gradient '{}'", gradient->name)));
    divide(PENSTOCK_FLOAT32, gradient->carry.data(), gradient->numel, set_.world);
  }
  return {};
}

// ---- the end of a step ----

// A carry that neither a memory nor a result has taken waits for the next step, because the memory
// that kept it is gone. A carry of a forgotten gradient waits too, because its memory's step is
// undone.
void Carries::settle(CompiledPlan& now, uint32_t phase, const std::vector<uint8_t>& forgotten) {
  for (auto& bucket : now.phase(phase)) {
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

void Carries::drop() {
  for (auto& gradient : gradients_) gradient->has_carry = false;
}

std::string Carries::names() const {
  std::string names;
  for (const auto& gradient : gradients_)
    if (gradient->has_carry) names += gradient->name + '\n';
  return names;
}

// ---- saved states ----

std::vector<std::string_view> Carries::views() const {
  std::vector<std::string_view> views;
  for (const auto& gradient : gradients_) views.push_back(bytes_of(*gradient));
  return views;
}

Result<Carries::Kept> Carries::read(const SavedSet& saved) const {
  Kept kept;
  for (size_t i = 0; i < saved.carries.size(); ++i) {
    const std::string_view carry = saved.carries[i];
    kept.emplace_back(carry.empty() ? 0 : gradients_[i]->numel * sizeof(float));
    if (carry.size() != kept.back().bytes())
      return mismatch("the saved state of set '{}' keeps {} bytes for gradient '{}', expected {}",
                      set_.name, carry.size(), gradients_[i]->name, kept.back().bytes());
    if (!carry.empty()) std::memcpy(kept.back().data(), carry.data(), kept.back().bytes());
  }
  PENSTOCK_TRY(check_places(kept));
  return kept;
}

Result<Carries::Kept> Carries::read_shards(const std::vector<SavedSet>& saved, const Resize& to,
                                           std::string& said) const {
  Kept kept(gradients_.size());
  size_t n_carries = 0;
  for (size_t i = 0; i < gradients_.size(); ++i) {
    std::vector<std::optional<std::string_view>> of_all;
    for (const SavedSet& one : saved) {
      const std::string_view carry = one.carries[i];
      if (!carry.empty() && carry.size() != gradients_[i]->numel * sizeof(float))
        return mismatch("the shard of rank {} keeps {} bytes for gradient '{}', expected {}",
                        one.rank, carry.size(), gradients_[i]->name,
                        gradients_[i]->numel * sizeof(float));
      of_all.push_back(carry.empty() ? std::nullopt : std::optional(carry));
    }
    if (std::none_of(of_all.begin(), of_all.end(), [](const auto& one) { return one.has_value(); }))
      continue;
    kept[i] = Buffer(gradients_[i]->numel * sizeof(float));
    take_share(of_all, PENSTOCK_FLOAT32, to, to.worth(), {kept[i].data(), kept[i].bytes()});
    ++n_carries;
  }
  PENSTOCK_TRY(check_places(kept));
  if (n_carries != 0)
    said += fmt::format(
        "left to add by a switch: {} gradients, taken over, their {} over ranks did not change\n",
        n_carries, to.averages ? "mean" : "sum");
  return kept;
}

// Refuses carries of device-resident gradients: the host adds carries, in host memory.
Status Carries::check_places(const Kept& kept) const {
  for (size_t i = 0; i < kept.size(); ++i)
    if (kept[i].bytes() != 0 && gradients_[i]->on_device.resident != nullptr)
      return failed_precondition(
          "the saved state of set '{}' keeps the values that a switch has left to add to gradient "
          "'{}', which is device-resident on {}: save one step later, or load it with the gradient "
          "on the CPU",
          set_.name, gradients_[i]->name, gradients_[i]->lies_on.name());
  return {};
}

Carries::Kept Carries::replace(Kept kept) {
  for (size_t i = 0; i < gradients_.size(); ++i) {
    Gradient& gradient = *gradients_[i];
    const bool had = std::exchange(gradient.has_carry, kept[i].bytes() != 0);
    std::swap(gradient.carry, kept[i]);
    if (!had) kept[i] = Buffer();
  }
  return kept;
}

}  // namespace penstock
