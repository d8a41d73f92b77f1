#include "planner.hpp"

#include "runs.hpp"
#include "split.hpp"
#include "whole.hpp"

#include <planning/forecast.hpp>
#include <planning/model.hpp>
#include <planning/rules.hpp>

#include <algorithm>
#include <numeric>
#include <set>

namespace optimal {

namespace planning = penstock::planning;
namespace sdk = penstock::sdk;

namespace {

// The most places of one search, whose time grows with their square.
constexpr uint64_t kMostPlaces = 64;
// The number of searches: the first uses places all over the model, the others use places near the
// cuts of the best plan. One more search follows behind the last cuts of the best plan.
constexpr int kSearches = 3;
// Up to this number of gradients all cuts are tried if no search is exact.
constexpr uint64_t kFewGradients = 12;

// The steps of a single search, which take some milliseconds, and the steps of each of several
// searches.
constexpr uint32_t kMostSteps = 80000;
constexpr uint32_t kStepsOfSeveral = 20000;
static_assert(most_ways(kFewGradients, kMostSteps) >= 1u << (kFewGradients - 2),
              "for few gradients no possibility is dropped");

using Places = std::vector<uint64_t>;

class Planner {
 public:
  Planner(const penstock_model& model, uint32_t phase, uint32_t route)
      : sent_(model, phase, route), gradients_(sent_.gradients) {}

  Planned planned() {
    if (gradients_.empty()) return {{}, "nothing is sent"};
    for (planning::Buckets& cut : planning::cuts_by_rules(sent_.model, sent_.phase, gradients_))
      consider(cut);
    if (times_.exposed_us <= 0) return planned("nothing is exposed");
    if (is_in_order()) return searched();
    if (gradients_.size() > kFewGradients) {
      search_closely();
      return planned(sdk::text(
          "gradients were not ready in the agreed order, so another cut may expose less"));
    }
    try_all();
    return planned("no cut exposes less: all were tried");
  }

 private:
  Planned searched() {
    const uint64_t n = gradients_.size();
    const bool is_proven = search_closely();
    if (is_proven) return planned("no cut exposes less");
    if (n <= kMostPlaces) return planned("another cut may expose less: not all were weighed");
    return planned(sdk::text("searched at ", kMostPlaces, " of ", n,
                             " places at a time, so another cut may expose less"));
  }

  Planned planned(std::string how) { return {std::move(best_), std::move(how)}; }

  // Takes a cut if it exposes less than the best cut so far, or as much with fewer buckets.
  bool consider(const planning::Buckets& cut) {
    planning::Plan plan;
    for (const std::vector<uint64_t>& bucket : cut)
      plan.buckets.push_back(
          planning::whole_gradients(sent_.model, bucket, sent_.phase, sent_.route));
    planning::Forecast times = planning::forecast(plan, sent_.model, sent_.phase);
    const bool is_better = best_.empty() || times.exposed_us < times_.exposed_us ||
                           (times.exposed_us == times_.exposed_us && cut.size() < best_.size());
    if (!is_better) return false;
    best_ = cut;
    times_ = std::move(times);
    return true;
  }

  // Whether the gradients are ready in the agreed order. Searches assume this order; the forecast
  // uses the measured times.
  bool is_in_order() const {
    double last = 0;
    for (uint64_t gradient : gradients_) {
      const double ready = planning::usable(sent_.model.gradients[gradient]->ready_us);
      if (ready < last) return false;
      last = ready;
    }
    return true;
  }

  void try_all() {
    const uint64_t n = gradients_.size();
    for (uint64_t cuts = 0; cuts < uint64_t{1} << (n - 1); ++cuts) {
      Places places{0};
      for (uint64_t i = 1; i < n; ++i)
        if ((cuts >> (i - 1) & 1) != 0) places.push_back(i);
      places.push_back(n);
      consider(cut_at(places));
    }
  }

  // Searches, and returns whether it is proven that no cut is better than the best. Each search
  // begins where the search before has ended.
  bool search_closely() {
    Places places = evenly();
    const bool is_proven = search(places);
    if (gradients_.size() <= kMostPlaces) return is_proven;
    for (int i = 1; i < kSearches; ++i) {
      const Places closer = near_the_best();
      if (closer == places) break;
      places = closer;
      search(places);
    }
    if (const Places end = at_the_end(); !end.empty()) search(end);
    return false;
  }

  // Searches at these places, and returns whether it is proven that no cut at them is better than
  // the best. Buckets of the best plan may lie before the first place.
  bool search(const Places& places) {
    const Runs runs(sent_, places);
    const Cut cut = cut_of(runs);
    if (cut.ends.empty()) return cut.is_proven;
    Places found = cuts_of_the_best();
    std::erase_if(found, [&](uint64_t place) { return place > places.front(); });
    for (uint32_t end : cut.ends) found.push_back(runs.place(end));
    consider(cut_at(found));
    return cut.is_proven;
  }

  Cut cut_of(const Runs& runs) const {
    const bool is_only = gradients_.size() <= kMostPlaces;
    const uint32_t n_ways = most_ways(runs.n_parts(), is_only ? kMostSteps : kStepsOfSeveral);
    if (sent_.route == PENSTOCK_ROUTE_SPLIT)
      return least_split(runs, head<SplitHead>(runs.place(0)), times_.backward_end,
                         times_.exposed_us, n_ways);
    return soonest_cut(runs, head<Head>(runs.place(0)), times_.forward_start, n_ways);
  }

  // The state after the buckets of the best plan before `place`, which must be a cut of that plan.
  template <typename State>
  State head(uint64_t place) const {
    State state;
    uint64_t begin = 0;
    for (const std::vector<uint64_t>& bucket : best_) {
      if (begin == place) break;
      state.add(sent_.run(begin, begin + bucket.size()));
      begin += bucket.size();
    }
    return state;
  }

  // Both ends, and places between them at equal distances.
  Places evenly() const {
    const uint64_t n = gradients_.size(), parts = std::min(n, kMostPlaces);
    Places places;
    for (uint64_t i = 0; i <= parts; ++i) places.push_back(n / parts * i + n % parts * i / parts);
    return places;
  }

  Places cuts_of_the_best() const {
    Places cuts{0};
    for (const std::vector<uint64_t>& bucket : best_) cuts.push_back(cuts.back() + bucket.size());
    return cuts;
  }

  // The cuts of the best plan, as many as there is room for, and the places nearest to them.
  Places near_the_best() const {
    const uint64_t n = gradients_.size();
    const Places cuts = cuts_of_the_best();
    std::set<uint64_t> places{0, n};
    for (uint64_t distance = 0; distance < n && places.size() <= kMostPlaces;
         distance = distance < 4 ? distance + 1 : 2 * distance)
      for (uint64_t cut : cuts)
        for (uint64_t place : {cut - std::min(cut, distance), std::min(cut + distance, n)})
          if (places.size() <= kMostPlaces) places.insert(place);
    return {places.begin(), places.end()};
  }

  // All places from some late cut of the best plan to the end, where most time is exposed.
  Places at_the_end() const {
    const uint64_t n = gradients_.size();
    for (uint64_t cut : cuts_of_the_best()) {
      if (n - cut > kMostPlaces || cut == n) continue;
      Places places(n - cut + 1);
      std::iota(places.begin(), places.end(), cut);
      return places;
    }
    return {};
  }

  planning::Buckets cut_at(const Places& places) const {
    planning::Buckets buckets;
    for (size_t i = 1; i < places.size(); ++i)
      buckets.emplace_back(gradients_.begin() + static_cast<ptrdiff_t>(places[i - 1]),
                           gradients_.begin() + static_cast<ptrdiff_t>(places[i]));
    return buckets;
  }

  const Sent sent_;
  const std::vector<uint64_t>& gradients_;
  planning::Buckets best_;
  planning::Forecast times_;  // times of the best plan
};

}  // namespace

Planned least_exposed(const penstock_model& model, uint32_t phase, uint32_t route) {
  return Planner(model, phase, route).planned();
}

}  // namespace optimal
