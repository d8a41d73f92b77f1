#include "core/set/declaration.hpp"

#include "core/fit/resolve.hpp"
#include "core/plugin/c_struct.hpp"

#include <algorithm>
#include <map>

namespace penstock {

Status Declaration::take_ranks(const penstock_set_declaration& declaration) {
  set_.name = view(declaration.name);
  if (set_.name.empty()) return invalid_argument("a set needs a name");
  if (declaration.ranks == nullptr && declaration.n_ranks != 0)
    return invalid_argument("set '{}' has {} ranks, but its list of ranks is missing", set_.name,
                            declaration.n_ranks);
  Result<Group> group = services_.world.subset({declaration.ranks, declaration.n_ranks});
  PENSTOCK_TRY(group.status().with_context(fmt::format("set '{}'", set_.name)));
  group_ = std::move(group.value());
  return {};
}

Status Declaration::take(const penstock_set_declaration& declaration) {
  flags_ = declaration.flags;
  agreement_ = view(declaration.agreement);
  PENSTOCK_TRY(take_scheme(view(declaration.scheme)));
  fill_context();
  return take_gradients(declaration);
}

Status Declaration::take_scheme(std::string_view scheme) {
  if (scheme.empty()) {
    config_ = services_.config;
    return {};
  }
  LoadOptions options;
  options.allow_runtime = false;
  PENSTOCK_ASSIGN(config_, load_config_text(scheme, fmt::format("scheme of set '{}'", set_.name),
                                            "/", options));
  const CollectiveInstance& transport = services_.transports.world();
  const std::string_view id =
      transport.plugin() == nullptr ? kBorrowedCollective : transport.plugin()->record.id;
  config_.settle_transport(transport.name(), std::string(id.substr(id.find('/') + 1)));
  return check_config(config_, services_.registry);
}

void Declaration::fill_context() {
  set_.take_group(group_);
  // Only a set of all ranks has direct messages: sets of different ranks have no common order.
  set_.on_device.between = &services_.between_devices;
  if (set_.world == services_.world.size())
    set_.at(services_.between_devices.level).direct.channel = services_.between_devices.channel;
  set_.communication = &services_.communication;
  set_.engine = &services_.engine;
  set_.timeline = &services_.timeline;
  // The last resort: Control notices and names a missing rank before this limit.
  const TimeLimits& limits = services_.limits;
  set_.limit_us = limits.busy_us == 0 ? 0 : limits.busy_us + limits.deadline_us;
  set_.calls = &services_.activity.engine;
  set_.planning_calls = &services_.activity.planning;
  set_.result_is_sum = has(PENSTOCK_SET_SUM);
  set_.forgets = services_.config.runtime().forget;
  set_.nonfinite_is_strict = services_.config.runtime().nonfinite == Nonfinite::strict;
  set_.coding_path = kernels::code_path_named(services_.config.runtime().code_path);
  set_.arena_limit_bytes = services_.config.runtime().arena_limit_mb << 20;
  penstock_step& step = set_.step;
  step.struct_size = sizeof step;
  step.seed = services_.config.runtime().seed;
  step.grad_scale = 1;
  step.rank = set_.rank;
  step.world = set_.world;
}

Result<uint32_t> Declaration::owner_of(const penstock_gradient_declaration& gradient) const {
  const auto found = std::find(group_.ranks().begin(), group_.ranks().end(), gradient.owner);
  if (found == group_.ranks().end())
    return invalid_argument(
        "gradient '{}' belongs to rank {}, which is not among the {} ranks of set '{}'",
        view(gradient.name), gradient.owner, set_.world, set_.name);
  return static_cast<uint32_t>(found - group_.ranks().begin());
}

Status Declaration::take_gradients(const penstock_set_declaration& declaration) {
  std::map<std::string_view, uint64_t> names;
  for (uint64_t i = 0; i < declaration.n_gradients; ++i) {
    penstock_gradient_declaration c{};
    PENSTOCK_TRY(take_struct(declaration.gradients[i], "penstock_gradient_declaration", c));
    auto gradient = std::make_unique<Gradient>(DeclaredGradient(
        std::string(view(c.name)), i, std::vector<int64_t>(c.shape, c.shape + c.n_dims), c.dtype));
    gradient->given_bucket = c.given_bucket;
    if (has(PENSTOCK_SET_RESULT_AT_OWNER)) {
      PENSTOCK_ASSIGN(gradient->owner, owner_of(c));
    }
    for (int64_t extent : gradient->shape)
      if (extent < 0)
        return invalid_argument("gradient '{}' has the negative extent {}", gradient->name, extent);
    if (gradient->name.empty())
      return invalid_argument("gradient {} of set '{}' has no name", i, set_.name);
    if (dtype_bytes(c.dtype) == 0)
      return invalid_argument("gradient '{}' is of the unknown dtype {}", gradient->name, c.dtype);
    gradient->lies_on = {c.device_type, c.device_id};
    gradients_.push_back(std::move(gradient));
    if (!names.emplace(gradients_.back()->name, i).second)
      return invalid_argument("two gradients of set '{}' are named '{}'", set_.name,
                              gradients_.back()->name);
  }
  return {};
}

std::vector<const DeclaredGradient*> Declaration::declared() const {
  std::vector<const DeclaredGradient*> declared;
  for (const auto& gradient : gradients_) declared.push_back(gradient.get());
  return declared;
}

Status Declaration::compare() const {
  const TimedSpan span(set_.timeline, "negotiate", "application", set_.step.index);
  std::string text = agreement_;
  for (const auto& gradient : gradients_) {
    text += fmt::format("gradient {} '{}' {}", gradient->index, gradient->name,
                        dtype_name(gradient->dtype));
    for (int64_t extent : gradient->shape) text += fmt::format(" {}", extent);
    if (gradient->given_bucket != PENSTOCK_NO_BUCKET)
      text += fmt::format(" bucket {}", gradient->given_bucket);
    if (has(PENSTOCK_SET_RESULT_AT_OWNER)) text += fmt::format(" owner {}", gradient->owner);
    text += '\n';
  }
  text += fmt::format("frontend flags {:#x}\n", flags_);
  PENSTOCK_ASSIGN(std::string scheme, agreement_text(config_, services_.registry));
  return services_.control
      .agree("set " + set_.name, text + scheme, group_.ranks(), services_.limits.rendezvous_us)
      .with_context(fmt::format("set '{}'", set_.name));
}

}  // namespace penstock
