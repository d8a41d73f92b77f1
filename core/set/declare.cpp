// How a set is made: what a frontend declares of it is checked here, and compared with the other
// ranks.

#include "core/fit/resolve.hpp"
#include "core/plugin/c_struct.hpp"
#include "core/set/set.hpp"

#include <algorithm>
#include <map>

namespace penstock {

Result<SetHandle> Set::create(const Services& services,
                              const penstock_set_declaration& declaration) {
  PENSTOCK_TRY(services.state());
  SetHandle set(new Set(services));
  services.run.remember(*set);
  PENSTOCK_TRY(set->make(declaration));
  return set;
}

// Whoever cannot go on says so where the others wait next, in bounded time and by name.
Status Set::make(const penstock_set_declaration& declaration) {
  const auto in_set = [&](const Status& status) {
    return status.with_context(fmt::format("set '{}'", name));
  };
  name = view(declaration.name);
  if (name.empty()) return invalid_argument("a set needs a name");
  if (declaration.ranks == nullptr && declaration.n_ranks != 0)
    return invalid_argument("set '{}' has {} ranks, and no list of them", name,
                            declaration.n_ranks);
  Result<Group> group = services_.world.subset({declaration.ranks, declaration.n_ranks});
  PENSTOCK_TRY(in_set(group.status()));
  group_ = std::move(group.value());
  const Status declared = declare(declaration);
  if (!declared.ok()) return services_.control.refuse("set " + name, declared, group_.ranks());
  step_.announce_in(services_.activity.add_set(name));
  PENSTOCK_TRY(in_set(agree_on_declaration()));
  PENSTOCK_TRY(in_set(channels_.open(config_.at_step(0))));
  PENSTOCK_ASSIGN(const std::shared_ptr<const Fitting> fitting, fit_first_stage());
  measurements_.probe(*fitting);
  PENSTOCK_ASSIGN(Plan plan, agree_on_plan(*fitting));
  Result<std::unique_ptr<Works>> works = agree_on_works(fitting, std::move(plan));
  PENSTOCK_TRY(in_set(works.status()));
  install(std::move(works.value()));
  traffic_.start();
  need_agreement(where_to_go_on(step.index, works_->plan()), std::nullopt);
  begin_attempt();
  say_plan();
  say_staged();
  if (const std::string file = services_.run.next_profile(); !file.empty()) {
    std::vector<DeclaredGradient> declared_gradients;
    for (const auto& gradient : gradients_) declared_gradients.push_back(*gradient);
    record_ = std::make_unique<ModelRecord>(file, name, std::move(declared_gradients));
  }
  return {};
}

// The first stage's, once all fit.
Result<std::shared_ptr<const Fitting>> Set::fit_first_stage() {
  const Result<std::vector<Stage>> stages = fit_stages();
  Status fits = stages.status();
  if (fits.ok()) fits = settle_residence(stages.value());
  if (!fits.ok()) fits = fits.with_context(fmt::format("set '{}'", name));
  PENSTOCK_TRY(share_outcome("fit", fits));
  return stages.value().front().fitting;
}

// What one rank found wrong by itself, the others would never hear of.
Status Set::share_outcome(std::string_view stage, const Status& mine) {
  const std::string topic = fmt::format("{} of set {}", stage, name);
  if (!mine.ok()) return services_.control.refuse(topic, mine, group_.ranks());
  return services_.control.agree(topic, "", group_.ranks(), meeting_us_);
}

Status Set::declare(const penstock_set_declaration& declaration) {
  meeting_us_ = services_.limits.meeting_us;
  frontend_flags_ = declaration.flags;
  const auto scheme = view(declaration.scheme);
  if (scheme.empty()) {
    config_ = services_.config;
  } else {
    LoadOptions options;
    options.allow_runtime = false;
    PENSTOCK_ASSIGN(
        config_, load_config_text(scheme, fmt::format("scheme of set '{}'", name), "/", options));
    const CollectiveInstance& transport = services_.transports.world();
    const std::string_view id =
        transport.plugin() == nullptr ? kLentCollective : transport.plugin()->record.id;
    config_.settle_transport(transport.name(), std::string(id.substr(id.find('/') + 1)));
    PENSTOCK_TRY(check_config(config_, services_.registry));
  }
  rank = group_.rank();
  world = group_.size();
  n_hosts = group_.n_hosts();
  owners_per_host = group_.least_per_host();
  at(PENSTOCK_LEVEL_WORLD).group = group_;
  at(PENSTOCK_LEVEL_LOCAL).group = group_.local();
  at(PENSTOCK_LEVEL_CROSS).group = group_.cross();
  // Sets of some ranks have no order with those of others: theirs go through host memory.
  between_devices = &services_.between_devices;
  if (world == services_.world.size())
    at(between_devices->level).direct.channel = between_devices->channel;

  PENSTOCK_TRY(declare_gradients(declaration));
  outcome_.resize(gradients_.size());
  forgotten_.resize(gradients_.size());
  PENSTOCK_TRY(find_devices());
  communication = &services_.communication;
  engine = &services_.engine;
  timeline = &services_.timeline;
  // The last resort: that a rank does not come is noticed before, and said by name.
  limit_us =
      services_.limits.busy_us == 0 ? 0 : services_.limits.busy_us + services_.limits.deadline_us;
  calls = &services_.activity.engine;
  planning_calls = &services_.activity.planning;
  result_is_sum = (frontend_flags_ & PENSTOCK_SET_SUM) != 0;
  forgets = services_.config.runtime().forget;
  nonfinite_is_strict = services_.config.runtime().nonfinite == Nonfinite::strict;
  exec.struct_size = sizeof exec;
  exec.device_type = PENSTOCK_DEVICE_CPU;
  step.struct_size = sizeof step;
  step.seed = services_.config.runtime().seed;
  step.grad_scale = 1;
  step.rank = rank;
  step.world = world;
  return {};
}

Result<uint32_t> Set::owner_of(const penstock_gradient_declaration& gradient) const {
  const auto found = std::find(group_.ranks().begin(), group_.ranks().end(), gradient.owner);
  if (found == group_.ranks().end())
    return invalid_argument(
        "gradient '{}' belongs to rank {}, which is not one of the {} ranks of set '{}'",
        view(gradient.name), gradient.owner, world, name);
  return static_cast<uint32_t>(found - group_.ranks().begin());
}

Status Set::declare_gradients(const penstock_set_declaration& declaration) {
  std::map<std::string_view, uint64_t> names;
  for (uint64_t i = 0; i < declaration.n_gradients; ++i) {
    penstock_gradient_declaration c{};
    PENSTOCK_TRY(take_struct(declaration.gradients[i], "penstock_gradient_declaration", c));
    auto gradient = std::make_unique<Gradient>(DeclaredGradient(
        std::string(view(c.name)), i, std::vector<int64_t>(c.shape, c.shape + c.n_dims), c.dtype));
    gradient->given_bucket = c.given_bucket;
    if ((frontend_flags_ & PENSTOCK_SET_RESULT_AT_OWNER) != 0) {
      PENSTOCK_ASSIGN(gradient->owner, owner_of(c));
    }
    for (int64_t extent : gradient->shape)
      if (extent < 0)
        return invalid_argument("gradient '{}' has the negative extent {}", gradient->name, extent);
    if (gradient->name.empty())
      return invalid_argument("gradient {} of set '{}' has no name", i, name);
    if (dtype_bytes(c.dtype) == 0)
      return invalid_argument("gradient '{}' is of the unknown dtype {}", gradient->name, c.dtype);
    gradient->lies_on = {c.device_type, c.device_id};
    gradients_.push_back(std::move(gradient));
    if (!names.emplace(gradients_.back()->name, i).second)
      return invalid_argument("two gradients of set '{}' are named '{}'", name,
                              gradients_.back()->name);
  }
  return {};
}

Status Set::agree_on_declaration() {
  const TimedSpan span(timeline, "negotiate", "application", step.index);
  std::string text;
  for (const auto& gradient : gradients_) {
    text += fmt::format("gradient {} '{}' {}", gradient->index, gradient->name,
                        dtype_name(gradient->dtype));
    for (int64_t extent : gradient->shape) text += fmt::format(" {}", extent);
    if (gradient->given_bucket != PENSTOCK_NO_BUCKET)
      text += fmt::format(" bucket {}", gradient->given_bucket);
    if ((frontend_flags_ & PENSTOCK_SET_RESULT_AT_OWNER) != 0)
      text += fmt::format(" owner {}", gradient->owner);
    text += '\n';
  }
  text += fmt::format("frontend flags {:#x}\n", frontend_flags_);
  PENSTOCK_ASSIGN(std::string scheme, agreement_text(config_, services_.registry));
  return services_.control.agree("set " + name, text + scheme, group_.ranks(), meeting_us_);
}

}  // namespace penstock
