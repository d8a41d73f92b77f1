#include "core/fit/fitting.hpp"

#include "core/fit/resolve.hpp"

#include <penstock/validate.hpp>

#include <algorithm>
#include <numeric>

namespace penstock {
namespace {

// Buckets are made for each phase: methods that alternate in two or three are what there is.
constexpr uint32_t kMostPhases = 256;

}  // namespace

std::vector<ChosenGradient> choose(const Scheme& scheme,
                                   const std::vector<const DeclaredGradient*>& gradients) {
  std::vector<ChosenGradient> chosen;
  for (const DeclaredGradient* gradient : gradients)
    chosen.push_back({gradient, scheme.choose(gradient->facts())});
  return chosen;
}

Result<std::shared_ptr<const Fitting>> Fitting::make(Scheme scheme,
                                                     std::vector<ChosenGradient> gradients,
                                                     Registry& registry, const FittingSite& site) {
  const std::shared_ptr<Fitting> made(new Fitting);
  made->scheme_ = std::move(scheme);
  made->gradients_ = std::move(gradients);
  made->world_ = site.world;
  if (const std::string& name = made->scheme_.scheduler; !name.empty()) {
    const PluginCall noted(site.calls, "scheduler", name, "create", {}, site.set);
    PENSTOCK_ASSIGN(made->scheduler_,
                    make_instance<penstock_scheduler>(made->scheme_, name, registry));
    settle_route(made->scheme_, *made->scheduler_);
  }
  PENSTOCK_TRY(made->examine(registry, site));
  return std::shared_ptr<const Fitting>(made);
}

template <typename Table>
Result<Instance<Table>*> Fitting::instance(const std::string& name, Registry& registry,
                                           const FittingSite& site) {
  std::unique_ptr<Instance<Table>>* slot;
  if constexpr (std::is_same_v<Table, penstock_compressor>)
    slot = &compressors_[name];
  else
    slot = &memories_[name];
  if (*slot == nullptr) {
    const PluginCall noted(site.calls, kind_name(TableTraits<Table>::kKind), name, "create", {},
                           site.set);
    PENSTOCK_ASSIGN(*slot, make_instance<Table>(scheme_, name, registry));
  }
  return slot->get();
}

Status Fitting::examine(Registry& registry, const FittingSite& site) {
  for (const auto& [gradient, choice] : gradients_) {
    auto& options = options_.emplace_back();
    std::vector<std::string> names = choice.candidates;
    if (names.empty()) names.push_back(choice.compressor);
    for (const std::string& name : names) {
      Option& option = options.emplace_back();
      PENSTOCK_ASSIGN(option.compressor, instance<penstock_compressor>(name, registry, site));
      PENSTOCK_ASSIGN(option.memory, instance<penstock_memory>(choice.memory, registry, site));
      TemplateItem item(*gradient, {0, 0, gradient->numel, 0});
      PENSTOCK_ASSIGN(option.needs, plan_template(item, *option.compressor, *option.memory,
                                                  site.world, site.calls, site.set));
      const auto phases = static_cast<uint32_t>(option.needs.phase_bytes.size());
      if (std::lcm(period_, phases) > kMostPhases)
        return failed_precondition(
            "compressor \"{}\" (for {} and others) has {} phases and those before it {}: together "
            "more than {}; use compressors whose numbers of phases divide each other",
            name, gradient->name, phases, period_, kMostPhases);
      period_ = std::lcm(period_, phases);
    }
  }
  for (auto& options : options_)
    for (Option& option : options) {
      std::vector<uint64_t>& bytes = option.needs.phase_bytes;
      for (size_t p = bytes.size(); p < period_; ++p) bytes.push_back(bytes[p % bytes.size()]);
    }
  return {};
}

// Of the first candidates: what is sent, and what arrives.
uint64_t Fitting::arena_bytes() const {
  uint64_t total = 0;
  for (const auto& options : options_) {
    const ItemNeeds& needs = options.front().needs;
    const uint64_t most = *std::max_element(needs.phase_bytes.begin(), needs.phase_bytes.end());
    const bool gathered = needs.combine == PENSTOCK_COMBINE_GATHER;
    const auto both = sdk::checked_product(most, gathered ? uint64_t{1} + world_ : 2);
    total = (both ? sdk::checked_sum(total, *both) : std::nullopt).value_or(~uint64_t{0});
  }
  return total;
}

void Fitting::describe(FitInput& input) const {
  for (size_t i = 0; i < gradients_.size(); ++i) {
    input.most_candidates = std::max(input.most_candidates, options_[i].size());
    for (const Option& option : options_[i])
      add_group(input, {gradients_[i].gradient->name, option.needs.compressor_facts,
                        option.needs.memory_facts, PENSTOCK_DEVICE_CPU});
  }
  if (scheduler_ != nullptr) {
    input.scheduler = scheduler_facts(scheduler_->name(), scheduler_->traits());
    input.route = scheme_.route;
  }
  input.has_transport = !scheme_.transport.empty();
  input.world = world_;
  if (input.arena_limit_bytes != 0) input.arena_bytes = arena_bytes();
}

PlanFacts Fitting::plan_facts() const {
  PlanFacts facts;
  facts.period = period_;
  for (size_t i = 0; i < gradients_.size(); ++i) {
    facts.numel.push_back(gradients_[i].gradient->numel);
    facts.names.push_back(gradients_[i].gradient->name);
    facts.n_candidates.push_back(static_cast<uint32_t>(options_[i].size()));
    auto& alignment = facts.part_alignment.emplace_back();
    for (const Option& option : options_[i]) alignment.push_back(option.needs.part_alignment);
  }
  return facts;
}

planning::ModelEntries Fitting::model() const {
  planning::ModelEntries model;
  model.world = world_;
  model.period = period_;
  model.route = scheme_.route;
  for (size_t i = 0; i < gradients_.size(); ++i) {
    const DeclaredGradient& gradient = *gradients_[i].gradient;
    planning::GradientEntry& entry = model.gradients.emplace_back();
    entry.name = gradient.name;
    entry.shape = gradient.shape;
    entry.bytes = gradient.bytes();
    entry.dtype = gradient.dtype;
    entry.given_bucket = gradient.given_bucket;
    for (const Option& option : options_[i]) {
      planning::CandidateEntry& candidate = entry.candidates.emplace_back();
      candidate.compressor = option.compressor->name();
      candidate.phase_bytes = option.needs.phase_bytes;
      candidate.part_alignment = option.needs.part_alignment;
      candidate.combine = option.needs.combine;
      candidate.n_rounds = option.needs.compressor_facts.n_rounds;
    }
  }
  return model;
}

StageTraffic Fitting::traffic(const Carriers& by, uint64_t from_step) const {
  StageTraffic stage;
  stage.from_step = from_step;
  for (const ChosenGradient& chosen : gradients_)
    stage.gradient_bytes += double(chosen.gradient->bytes());
  for (const auto& options : options_)
    stage.bytes +=
        std::min_element(options.begin(), options.end(), [&](const Option& a, const Option& b) {
          return by.moved(a.needs.planned, world_) < by.moved(b.needs.planned, world_);
        })->needs.planned;
  stage.moved = by.moved(stage.bytes, world_);
  stage.dense_moved = by.dense(stage.gradient_bytes, world_);
  stage.loses_from = by.loses_from(stage.bytes, stage.gradient_bytes);
  return stage;
}

}  // namespace penstock
