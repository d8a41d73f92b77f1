#include "tools/penstock/plan/sweep.hpp"

#include "tools/penstock/plan/tables.hpp"

#include <algorithm>
#include <cmath>

namespace penstock::command {

namespace {

constexpr double kPrecision = 1.001;  // precision of a crossover between speeds
constexpr double kMostRanks = 65536;
constexpr double kAsFast = 1 + 1e-9;  // so that rounding never decides

// Makes a sweep: predicts its points and finds its crossovers.
class Sweeper {
 public:
  Sweeper(Study& study, const Cluster& cluster, SweptFor what)
      : study_(study), cluster_(cluster), what_(what) {}

  Result<SweepPoint> at(double place) {
    Cluster cluster = cluster_;
    if (what_ == SweptFor::bandwidth)
      cluster.link_bits = place;
    else
      cluster.hosts = static_cast<uint32_t>(std::lround(place)) / cluster.ranks_per_host;
    PENSTOCK_ASSIGN(const std::vector<Prediction> outcomes, study_.at(cluster));
    SweepPoint point;
    point.at = place;
    point.best = study_.best(outcomes);
    for (const Prediction& outcome : outcomes) {
      point.step_us.push_back(outcome.step_us);
      point.exposed_us.push_back(outcome.exposed_us);
      point.bytes.push_back(outcome.bytes);
    }
    return point;
  }

  // Finds every change of the best scheme between two points.
  Status find_crossovers(const SweepPoint& first, const SweepPoint& last,
                         std::vector<Crossover>& found) {
    size_t best = first.best;
    double low = first.at;
    while (best != last.best) {
      SweepPoint high = last;
      for (double before = low; !are_neighbours(before, high.at);) {
        PENSTOCK_ASSIGN(SweepPoint middle, at(between(before, high.at)));
        if (middle.best == best)
          before = middle.at;
        else
          high = std::move(middle);
      }
      found.push_back({high.at, best, high.best});
      best = high.best;
      low = high.at;
    }
    return {};
  }

  // The places from `first` to `last`, including both ends if they are whole hosts.
  std::vector<double> places(double first, double last) const {
    std::vector<double> all;
    if (what_ == SweptFor::ranks) {
      const double host = cluster_.ranks_per_host;
      for (double ranks = std::ceil(first / host) * host; ranks <= last; ranks *= 2)
        all.push_back(ranks);
      const double most = std::floor(last / host) * host;
      if (!all.empty() && all.back() < most) all.push_back(most);
      return all;
    }
    all.push_back(first);
    for (double decade = std::pow(10, std::floor(std::log10(first))); decade < last; decade *= 10)
      for (const double digit : {1, 2, 5})
        if (digit * decade > first * kPrecision && digit * decade * kPrecision < last)
          all.push_back(digit * decade);
    all.push_back(last);
    return all;
  }

 private:
  bool are_neighbours(double low, double high) const {
    return what_ == SweptFor::ranks ? high - low <= cluster_.ranks_per_host
                                    : high <= low * kPrecision;
  }
  double between(double low, double high) const {
    if (what_ == SweptFor::bandwidth) return std::sqrt(low * high);
    const double host = cluster_.ranks_per_host;
    return std::floor((low + high) / 2 / host) * host;
  }

  Study& study_;
  Cluster cluster_;
  SweptFor what_;
};

Result<double> end_of_range(SweptFor what, const std::string& text) {
  if (what == SweptFor::bandwidth) return bits_per_second(text);
  double ranks = 0;
  if (read_number(text, ranks) && ranks == std::floor(ranks) && ranks >= 2 && ranks <= kMostRanks)
    return ranks;
  return invalid_argument("\"{}\" is no number of ranks, expected 2 to {}", text, kMostRanks);
}

}  // namespace

Result<std::vector<Prediction>> Study::at(const Cluster& cluster) {
  if (ranks_ != cluster.ranks()) rehearsals_.clear();
  ranks_ = cluster.ranks();
  const auto context = [&] { return fmt::format("with {} ranks", cluster.ranks()); };
  while (rehearsals_.size() < schemes_.size()) {
    auto made = Rehearsal::make(schemes_[rehearsals_.size()], profile_, cluster);
    PENSTOCK_TRY(made.status().with_context(context()));
    rehearsals_.push_back(std::move(made.value()));
  }
  const ReadyTimes ready = ready_times(profile_, cluster);
  std::vector<Prediction> outcomes;
  for (const Rehearsal& rehearsal : rehearsals_) {
    auto outcome = rehearsal.run(cluster, costs_, ready);
    PENSTOCK_TRY(outcome.status().with_context(context()));
    if (!outcome.value().open && !std::isfinite(outcome.value().step_us))
      return invalid_argument(
          "{}: the time of a step of \"{}\" cannot be computed: numbers of the profile, the costs "
          "or the cluster are too large or too small",
          context(), schemes_[outcomes.size()].name);
    outcomes.push_back(std::move(outcome.value()));
  }
  return outcomes;
}

size_t fastest(const std::vector<Prediction>& outcomes, bool compresses) {
  size_t best = outcomes.size();
  for (size_t i = 0; i < outcomes.size(); ++i) {
    if (outcomes[i].open || outcomes[i].compresses != compresses) continue;
    if (best == outcomes.size() || outcomes[i].step_us * kAsFast < outcomes[best].step_us) best = i;
  }
  return best;
}

size_t Study::best(const std::vector<Prediction>& outcomes) const {
  const size_t plain = fastest(outcomes, false), compressed = fastest(outcomes, true);
  if (compressed == outcomes.size()) return plain;
  const double wanted_us = (1 - worth_) * outcomes[plain].step_us;
  return outcomes[compressed].step_us * kAsFast < wanted_us ? compressed : plain;
}

Result<SweepRange> sweep_range(const std::string& text) {
  SweepRange range;
  const size_t equals = text.find('='), dots = text.find("..");
  const std::string what = text.substr(0, equals);
  if ((what != "bandwidth" && what != "ranks") || equals == std::string::npos ||
      dots == std::string::npos || dots < equals)
    return invalid_argument(
        "--sweep is \"{}\", expected bandwidth=FIRST..LAST, like bandwidth=10mbit..100gbit, or "
        "ranks=FIRST..LAST, like ranks=2..1024",
        text);
  range.what = what == "ranks" ? SweptFor::ranks : SweptFor::bandwidth;
  const std::string first = text.substr(equals + 1, dots - equals - 1);
  const auto context = [&](const Status& status) {
    return status.with_context(fmt::format("--sweep {}", text));
  };
  const Result<double> low = end_of_range(range.what, first);
  PENSTOCK_TRY(context(low.status()));
  const Result<double> high = end_of_range(range.what, text.substr(dots + 2));
  PENSTOCK_TRY(context(high.status()));
  range.first = low.value();
  range.last = high.value();
  if (range.first < range.last) return range;
  return invalid_argument("--sweep {}: it ends where it begins or before, expected FIRST < LAST",
                          text);
}

Result<Sweep> sweep(Study& study, const Cluster& cluster, const SweepRange& range) {
  Sweeper sweeper(study, cluster, range.what);
  const std::vector<double> places = sweeper.places(range.first, range.last);
  if (places.size() < 2)
    return invalid_argument(
        "--sweep {}={}..{} holds fewer than two whole hosts of {} ranks; take a wider range or "
        "fewer --ranks-per-host",
        range.name(), range.first, range.last, cluster.ranks_per_host);
  Sweep made;
  made.range = range;
  for (const double place : places) {
    PENSTOCK_ASSIGN(SweepPoint point, sweeper.at(place));
    if (!made.points.empty())
      PENSTOCK_TRY(sweeper.find_crossovers(made.points.back(), point, made.crossovers));
    made.points.push_back(std::move(point));
  }
  return made;
}

std::string place_text(SweptFor what, double at) {
  return what == SweptFor::bandwidth ? rate_text(at) : fmt::format("{:.0f} ranks", at);
}

}  // namespace penstock::command
