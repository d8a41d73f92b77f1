#include "strategies.hpp"

#include <planning/choosing.hpp>
#include <planning/route_cost.hpp>

#include <algorithm>
#include <set>

namespace espresso {

namespace planning = penstock::planning;
namespace sdk = penstock::sdk;

namespace {

// The route that the scheme asks for; otherwise `flat`, and the routes that differ from `flat` in
// this world.
std::vector<uint32_t> routes_in(const penstock_model& model) {
  if (model.route != 0) return {model.route};
  std::vector<uint32_t> routes{PENSTOCK_ROUTE_FLAT};
  if (model.hosts > 1 && model.ranks_per_host > 1) routes.push_back(PENSTOCK_ROUTE_HIERARCHICAL);
  if (model.world > 1) routes.push_back(PENSTOCK_ROUTE_SHARD);
  return routes;
}

bool can_take(const penstock_model& model, uint64_t gradient, const Way& way) {
  const penstock_gradient_model& facts = *model.gradients[gradient];
  const penstock_candidate& candidate =
      *facts.candidates[planning::choice_named(facts, way.compressor)];
  return sdk::view(candidate.compressor) == way.compressor &&
         (planning::routes_of(model, candidate) & planning::route_bit(way.route)) != 0;
}

}  // namespace

Strategies::Strategies(const penstock_model& model, std::string_view dense, uint64_t small)
    : model_(model) {
  find_units(small);
  find_ways(dense);
}

void Strategies::find_units(uint64_t small) {
  const std::vector<uint64_t> order = planning::in_order(model_);
  if (planning::are_given(model_)) {
    for (const std::vector<uint64_t>& gradients : planning::units(model_, order)) {
      units_.emplace_back();
      for (const uint64_t gradient : gradients) add(units_.back(), gradient);
    }
    return;
  }
  Unit joined;
  joined.is_small = true;
  for (const uint64_t gradient : order) {
    if (model_.gradients[gradient]->numel >= small) {
      units_.emplace_back();
      add(units_.back(), gradient);
      continue;
    }
    add(joined, gradient);
    if (joined.numel < small) continue;
    units_.push_back(joined);
    joined.gradients.clear();
    joined.numel = 0;
  }
  if (!joined.gradients.empty()) units_.push_back(joined);
}

void Strategies::add(Unit& unit, uint64_t gradient) const {
  unit.gradients.push_back(gradient);
  unit.numel += model_.gradients[gradient]->numel;
}

// A way is listed even if no unit can take it. Small units can take only dense ways. A gradient
// whose only candidate is its configured compressor takes it on the first route.
void Strategies::find_ways(std::string_view dense) {
  std::set<std::string_view> names;
  for (uint64_t i = 0; i < model_.n_gradients; ++i)
    for (uint64_t c = 0; c < model_.gradients[i]->n_candidates; ++c)
      names.insert(sdk::view(model_.gradients[i]->candidates[c]->compressor));
  names.erase(dense);
  for (const uint32_t route : routes_in(model_)) ways_.push_back({std::string(dense), route});
  n_dense_ = ways_.size();
  for (const std::string_view name : names)
    for (const uint32_t route : routes_in(model_)) ways_.push_back({std::string(name), route});
  for (const Unit& unit : units_) {
    std::vector<bool>& open = open_.emplace_back();
    for (size_t way = 0; way < ways_.size(); ++way)
      open.push_back(
          (way < n_dense_ || !unit.is_small) &&
          std::all_of(unit.gradients.begin(), unit.gradients.end(),
                      [&](uint64_t gradient) { return can_take(model_, gradient, ways_[way]); }));
  }
}

Strategy Strategies::all(size_t way, size_t otherwise) const {
  Strategy strategy;
  for (size_t unit = 0; unit < units_.size(); ++unit)
    strategy.push_back(takes(unit, way) ? way : takes(unit, otherwise) ? otherwise : 0);
  return strategy;
}

planning::Plan Strategies::plan_of(const Strategy& strategy) const {
  planning::Plan plan;
  plan.period = model_.period;
  for (uint32_t phase = 0; phase < model_.period; ++phase)
    for (size_t unit = 0; unit < units_.size(); ++unit) {
      const Way& way = ways_[strategy[unit]];
      planning::Bucket bucket{{}, way.route, phase, PENSTOCK_LAUNCH_READY};
      for (const uint64_t gradient : units_[unit].gradients) {
        const penstock_gradient_model& facts = *model_.gradients[gradient];
        const planning::Piece piece{gradient, 0, facts.numel,
                                    planning::choice_named(facts, way.compressor)};
        if (planning::takes_part(model_, piece, phase)) bucket.pieces.push_back(piece);
      }
      if (!bucket.pieces.empty()) plan.buckets.push_back(std::move(bucket));
    }
  return plan;
}

// If the scheme asks for a route, the lines of coding were measured on this route.
planning::Forecast Strategies::forecast(const planning::Plan& plan, uint32_t phase) const {
  return planning::forecast(plan, model_, phase, [&](uint64_t bucket) {
    planning::ExchangeTimes times = planning::exchange_on_route(model_, plan.buckets[bucket]);
    if (model_.route != 0) times.encode_share = times.decode_share = 1;
    return times;
  });
}

double Strategies::exposed_us(const Strategy& strategy) const {
  const planning::Plan plan = plan_of(strategy);
  double sum = 0;
  for (uint32_t phase = 0; phase < model_.period; ++phase) sum += forecast(plan, phase).exposed_us;
  return sum / model_.period;
}

size_t Strategies::n_hidden(const Strategy& strategy) const {
  const planning::Plan plan = plan_of(strategy);
  const planning::Forecast times = forecast(plan, 0);
  if (times.buckets.size() != units_.size()) return 0;  // some take no part in this phase
  size_t last_gap = 0;
  for (size_t i = 1; i < times.buckets.size(); ++i)
    if (times.buckets[i].exchange_start > times.buckets[i - 1].exchange_end) last_gap = i;
  return last_gap;
}

}  // namespace espresso
