#include "core/set/fits.hpp"

#include "core/fit/offers.hpp"
#include "core/fit/resolve.hpp"

#include <fmt/format.h>

namespace penstock {

Result<std::shared_ptr<const BoundScheme>> Fits::fit(uint64_t at) const {
  const Scheme scheme = declaration_.config().at_step(at);
  return BoundScheme::make(scheme, choose(scheme, declaration_.declared()), services_.registry,
                           {.world = set_.world,
                            .owners_per_host = set_.owners_per_host,
                            .forward_waits = declaration_.has(PENSTOCK_SET_DEFERRED_UPDATE),
                            .buckets_are_given = declaration_.has(PENSTOCK_SET_GIVEN_BUCKETS),
                            .results_at_owners = declaration_.has(PENSTOCK_SET_RESULT_AT_OWNER),
                            .connects_devices = set_.connects_devices(),
                            .arena_limit_bytes = set_.arena_limit_bytes,
                            .calls = set_.planning_calls,
                            .set = set_.name});
}

Result<FitAdvice> Fits::check(const BoundScheme& bound_scheme) const {
  FitInput input;
  const CollectiveInstance& transport = services_.transports.world();
  input.transport = collective_facts(transport.name(), transport.traits());
  for (const uint32_t level : {PENSTOCK_LEVEL_LOCAL, PENSTOCK_LEVEL_CROSS})
    if (services_.transports.has_own(level)) {
      const CollectiveInstance& own = services_.transports.at(level);
      input.of_level[level] = collective_facts(own.name(), own.traits());
    }
  const uint32_t level = level_of_owners(bound_scheme.scheme().route);
  if (const Channel* direct = set_.at(level).direct.channel; direct != nullptr)
    input.between_devices =
        collective_facts(services_.transports.for_devices()->name(), direct->traits);
  const CollectiveInstance* composite = channels_.composite();
  input.collective = composite != nullptr ? collective_facts(composite->name(), composite->traits())
                                          : input.transport;
  input.frontend = declaration_.flags();
  input.deterministic = services_.config.runtime().deterministic;
  input.arena_limit_bytes = set_.arena_limit_bytes;
  bound_scheme.describe(input);
  const RegistryOffers offers(services_.registry, set_.planning_calls);
  input.offers = &offers;
  PENSTOCK_ASSIGN(FitAdvice advice, check_fit(input));
  const uint32_t at_once = bound_scheme.ranks_at_once();
  if (at_once < set_.world)
    advice.warnings.push_back(fmt::format(
        "set '{}': gathered payloads of {} ranks do not fit runtime.arena_limit_mb = {} together, "
        "so they come {}, which takes longer; raise the limit if every rank has the memory",
        set_.name, set_.world, set_.arena_limit_bytes >> 20,
        at_once == 1 ? "rank by rank"
                     : fmt::format("in slices of at most {} ranks, one after another", at_once)));
  return advice;
}

Result<std::vector<SchemeStage>> Fits::all_stages() const {
  std::vector<SchemeStage> stages;
  for (uint64_t stage : declaration_.config().stages()) {
    const auto fits = [&]() -> Status {
      PENSTOCK_ASSIGN(const auto bound_scheme, fit(stage));
      PENSTOCK_ASSIGN(const FitAdvice advice, check(*bound_scheme));
      stages.push_back({stage, bound_scheme});
      if (stage == 0) warn(advice, set_, services_.log);  // later stages warn when they begin
      return {};
    };
    const Status status = fits();
    PENSTOCK_TRY(stage == 0 ? status : status.with_context(fmt::format("from step {} on", stage)));
  }
  return stages;
}

std::vector<StageTraffic> Fits::traffic_of(const std::vector<SchemeStage>& stages) const {
  std::vector<StageTraffic> traffic;
  for (const SchemeStage& stage : stages)
    traffic.push_back(stage.bound_scheme->traffic(channels_.carriers(), stage.first_step));
  return traffic;
}

void warn(const FitAdvice& advice, const SetContext& set, Log& log) {
  if (set.rank != 0) return;
  for (const std::string& warning : advice.warnings)
    log.write_once(LogLevel::warning, "fit", warning);
}

}  // namespace penstock
