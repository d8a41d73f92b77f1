#include "core/set/channels.hpp"

#include "core/fit/resolve.hpp"

namespace penstock {

Status SetChannels::open(const Scheme& scheme) {
  const CollectiveInstance& transport = services_.transports.world();
  PENSTOCK_TRY(check_opened(scheme, transport, services_.registry));
  if (scheme.transport.empty()) {
    if (scheme.collective != transport.name())
      return failed_precondition(
          "the scheme names the collective '{}', but the run joined over '{}': one transport per "
          "run",
          scheme.collective, transport.name());
  } else {
    PENSTOCK_ASSIGN(composite_, make_instance<penstock_collective>(scheme, scheme.collective,
                                                                   services_.registry));
    set_.composite_id = composite_->plugin()->record.id;
    set_.composite_name = scheme.collective;
    set_.transport_name = scheme.transport;
  }
  return open_level(PENSTOCK_LEVEL_WORLD);
}

// Opens the channels that the legs of a level need, unless they are open.
Status SetChannels::open_level(uint32_t level) {
  LevelLinks& links = set_.at(level);
  if (links.transport.channel != nullptr) return {};
  // Different groups of a level open channels side by side, under names of their own.
  const uint32_t first = links.group.ranks().front();
  const std::string which =
      level == PENSTOCK_LEVEL_LOCAL   ? fmt::format(" on the host of rank {}", first)
      : level == PENSTOCK_LEVEL_CROSS ? fmt::format(" across hosts with rank {}", first)
                                      : "";
  const auto open = [&](std::string_view what, CollectiveInstance& collective,
                        Channel* base) -> Result<Channel*> {
    PENSTOCK_ASSIGN(Channel * opened,
                    services_.run.open_channel(fmt::format("set {}{}{}", set_.name, what, which),
                                               links.group, collective, base));
    opened_.push_back(opened);
    return opened;
  };
  CollectiveInstance& carrier = services_.transports.at(level);
  PENSTOCK_ASSIGN(Channel * transport, open("", carrier, nullptr));
  if (composite_ != nullptr && level != PENSTOCK_LEVEL_LOCAL) {
    PENSTOCK_ASSIGN(Channel * base, open(" base", carrier, nullptr));
    PENSTOCK_ASSIGN(links.composite.channel, open(" " + set_.composite_name, *composite_, base));
  }
  links.transport.channel = transport;
  return {};
}

// Opens the levels that the routes of a plan use.
Status SetChannels::open_levels_of(const Plan& plan) {
  for (const planning::Bucket& bucket : plan.buckets)
    for (const LegKind& leg : legs_of(bucket.route)) PENSTOCK_TRY(open_level(leg.level));
  return {};
}

Result<std::vector<Channel*>> SetChannels::open_levels_of_first(const Group& group) {
  std::vector<Channel*> levels{set_.channel()};
  if (group.n_hosts() == 1) return levels;
  for (const uint32_t level : {PENSTOCK_LEVEL_LOCAL, PENSTOCK_LEVEL_CROSS}) {
    const LevelLinks& links = set_.at(level);
    const bool holds_first = links.group.ranks().front() == group.ranks().front();
    if (!holds_first || links.group.size() < 2) continue;
    PENSTOCK_TRY(open_level(level));
    levels.push_back(links.transport.channel);
  }
  return levels;
}

Carriers SetChannels::carriers() const {
  Carriers carriers;
  const auto carrier_at = [&](uint32_t level) -> Carrier {
    const CollectiveInstance& transport = services_.transports.at(level);
    return {transport.table(), transport.self()};
  };
  carriers.world = carrier_at(PENSTOCK_LEVEL_WORLD);
  carriers.local = carrier_at(PENSTOCK_LEVEL_LOCAL);
  carriers.cross = carrier_at(PENSTOCK_LEVEL_CROSS);
  carriers.ranks_per_host = set_.owners_per_host;
  carriers.sends_directly = set_.connects_devices();
  if (composite_ != nullptr) carriers.composite = {composite_->table(), composite_->self()};
  return carriers;
}

void SetChannels::close() {
  for (auto channel = opened_.rbegin(); channel != opened_.rend(); ++channel)
    services_.communication.close_channel(*channel);
}

}  // namespace penstock
