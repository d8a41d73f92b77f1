// A search over all cuts, bucket after bucket. The buckets after a prefix of gradients depend on
// the prefix only through the times when engine and link are free. So a way to cut a prefix can be
// dropped if for another way both times are earlier.
#include "merging.hpp"

#include <algorithm>

#include <planning/cost.hpp>
#include <planning/model.hpp>

namespace rgmerge {

namespace planning = penstock::planning;

namespace {

// How many ways to cut a prefix are kept. Few are needed, because engine and link mostly agree on
// the best way.
constexpr size_t kMostWays = 8;

// One way to cut a prefix into buckets.
struct Way {
  double engine_free = 0;
  double link_free = 0;
  uint32_t n_buckets = 0;
  uint32_t begin = 0;   // the first unit of its last bucket
  uint32_t before = 0;  // index of the way to cut the prefix that ends there
};

bool is_worse(const Way& a, const Way& b) {
  if (a.engine_free < b.engine_free || a.link_free < b.link_free) return false;
  return a.engine_free > b.engine_free || a.link_free > b.link_free || a.n_buckets >= b.n_buckets;
}

void keep(std::vector<Way>& ways, const Way& way) {
  for (const Way& other : ways)
    if (is_worse(way, other)) return;
  std::erase_if(ways, [&](const Way& other) { return is_worse(other, way); });
  ways.push_back(way);
  if (ways.size() <= kMostWays) return;
  ways.erase(std::max_element(ways.begin(), ways.end(), [](const Way& a, const Way& b) {
    return a.link_free < b.link_free;
  }));
}

// Gradients that are never separated, in order of readiness.
struct Unit {
  std::vector<uint64_t> gradients;
  double ready = 0;
};

std::vector<Unit> units_of(const penstock_model& model, uint32_t phase) {
  const std::vector<uint64_t> gradients = planning::taking_part(model, phase);
  const std::vector<double> ready = planning::ready_times(model, gradients);
  const uint64_t joined = (gradients.size() + kMostUnits - 1) / kMostUnits;
  std::vector<Unit> units;
  for (size_t i = 0; i < gradients.size(); ++i) {
    if (i % joined == 0) units.emplace_back();
    units.back().gradients.push_back(gradients[i]);
    units.back().ready = ready[i];
  }
  return units;
}

class Search {
 public:
  Search(const penstock_model& model, uint32_t phase, double caution)
      : model_(model),
        phase_(phase),
        caution_(caution),
        units_(units_of(model, phase)),
        ways_(units_.size() + 1) {}

  std::vector<std::vector<uint64_t>> best() {
    if (units_.empty()) return {};
    ways_[0] = {Way{}};
    for (uint32_t begin = 0; begin < units_.size(); ++begin) extend(begin);
    return buckets_of(best_);
  }

 private:
  // Adds every bucket that begins with this unit to all ways to cut the units before it.
  void extend(uint32_t begin) {
    planning::Together bucket(model_, phase_);
    for (uint32_t end = begin + 1; end <= units_.size(); ++end) {
      const Unit& last = units_[end - 1];
      for (uint64_t gradient : last.gradients) bucket.add(gradient);
      const double encode = caution_ * bucket.encode(), exchange = bucket.exchange();
      for (uint32_t before = 0; before < ways_[begin].size(); ++before) {
        const Way& prefix = ways_[begin][before];
        Way way{0, 0, prefix.n_buckets + 1, begin, before};
        way.engine_free = std::max(prefix.engine_free, last.ready) + encode;
        way.link_free = std::max(prefix.link_free, way.engine_free) + exchange;
        if (end < units_.size())
          keep(ways_[end], way);
        else
          finish(way, way.link_free + bucket.decode());
      }
    }
  }

  void finish(const Way& way, double ends) {
    const bool first = best_.n_buckets == 0;
    if (!first && (ends > best_end_ || (ends == best_end_ && way.n_buckets >= best_.n_buckets)))
      return;
    best_ = way;
    best_end_ = ends;
  }

  std::vector<std::vector<uint64_t>> buckets_of(Way way) const {
    std::vector<std::vector<uint64_t>> buckets;
    uint32_t end = static_cast<uint32_t>(units_.size());
    while (end > 0) {
      std::vector<uint64_t>& bucket = buckets.emplace_back();
      for (uint32_t i = way.begin; i < end; ++i)
        bucket.insert(bucket.end(), units_[i].gradients.begin(), units_[i].gradients.end());
      end = way.begin;
      if (end > 0) way = ways_[end][way.before];
    }
    std::reverse(buckets.begin(), buckets.end());
    return buckets;
  }

  const penstock_model& model_;
  uint32_t phase_;
  double caution_;
  std::vector<Unit> units_;
  std::vector<std::vector<Way>> ways_;  // ways to cut each length of prefix
  Way best_;
  double best_end_ = 0;
};

}  // namespace

std::vector<std::vector<uint64_t>> merged_buckets(const penstock_model& model, uint32_t phase,
                                                  double caution) {
  return Search(model, phase, caution).best();
}

}  // namespace rgmerge
