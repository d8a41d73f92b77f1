// The search goes from the first bucket to the last. The exposed time of backward grows with the
// times when engine and link are free:
//   engine[b] = max(engine[b-1], ready[b]) + encode[b]
//   link[b]   = max(link[b-1], engine[b]) + exchange[b]
// The next forward takes the buckets from the last to the first, so for the buckets of a prefix it
// is not known yet when link and engine come to them. The time that forward waits for them is a
// function of both times:
//   stall = max(link + from_link, engine + from_engine)
// A larger value of any of these four numbers is never better. So a way to cut a prefix can be
// dropped if another way is below it in all four.
#include "split.hpp"

#include <algorithm>

namespace optimal {

namespace {

// Relative rounding error: the search adds in another order than the forecast, so values that are
// nearer than this count as equal.
constexpr double kRounding = 1e-12;

struct Way {
  double bound = 0;  // no cut that begins with this way exposes less
  SplitHead state;
  uint32_t begin = 0;   // place at which its last bucket begins
  uint32_t before = 0;  // index of the way to cut the gradients before that place
};

// The least times of the buckets behind a place, for any cut.
struct Rest {
  double encode = 0;
  double exchange = 0;
  double gather = 0;
  double decode = 0;
};

// The rest for each place of the runs.
std::vector<Rest> rests_of(const Runs& runs) {
  constexpr double kMuch = std::numeric_limits<double>::infinity();
  std::vector<Rest> rests(runs.n_parts() + 1, {kMuch, kMuch, kMuch, kMuch});
  rests.back() = {};
  for (uint32_t begin = runs.n_parts(); begin > 0; --begin) {
    Rest& rest = rests[begin - 1];
    for (uint32_t end = begin; end <= runs.n_parts(); ++end) {
      const Run& run = runs.at(begin - 1, end);
      rest.encode = std::min(rest.encode, run.encode + rests[end].encode);
      rest.exchange = std::min(rest.exchange, run.exchange + rests[end].exchange);
      rest.gather = std::min(rest.gather, run.gather + rests[end].gather);
      rest.decode = std::min(rest.decode, run.decode + rests[end].decode);
    }
  }
  return rests;
}

bool is_below(const SplitHead& a, const SplitHead& b) {
  return a.engine <= b.engine && a.link <= b.link && a.from_link <= b.from_link &&
         a.from_engine <= b.from_engine;
}

class Search {
 public:
  Search(const Runs& runs, const SplitHead& head, double backward_end, double target,
         uint32_t n_ways)
      : runs_(runs),
        backward_end_(backward_end),
        least_(target),
        n_ways_(n_ways),
        rests_(rests_of(runs)),
        ways_(runs.n_parts() + 1) {
    ways_[0] = {Way{0, head, 0, 0}};
  }

  Cut cut() {
    for (uint32_t begin = 0; begin < runs_.n_parts(); ++begin) {
      for (uint32_t before = 0; before < ways_[begin].size(); ++before) extend(begin, before);
    }
    return {best_, !dropped_};
  }

 private:
  // The least time that a state at a place exposes; at the last place, the time that it exposes.
  // Link and engine have to do the rest in backward, and in forward before they come to the buckets
  // of the state.
  double exposed(const SplitHead& state, uint32_t place) const {
    const Rest& rest = rests_[place];
    const double late = std::max(state.engine + rest.encode, state.link + rest.exchange);
    const double decoded = std::max(rest.gather, rest.decode);
    return std::max(0.0, late - backward_end_) +
           std::max({0.0, rest.gather + state.from_link, decoded + state.from_engine});
  }

  void extend(uint32_t begin, uint32_t before) {
    for (uint32_t end = begin + 1; end <= runs_.n_parts(); ++end) {
      Way longer{0, ways_[begin][before].state, begin, before};
      longer.state.add(runs_.at(begin, end));
      longer.bound = exposed(longer.state, end);
      if (longer.bound + kRounding * backward_end_ >= least_ * (1 - kRounding)) continue;
      if (end < runs_.n_parts())
        keep(ways_[end], longer);
      else
        finish(longer);
    }
  }

  void keep(std::vector<Way>& ways, const Way& way) {
    for (const Way& other : ways)
      if (is_below(other.state, way.state)) return;
    std::erase_if(ways, [&](const Way& other) { return is_below(way.state, other.state); });
    ways.push_back(way);
    if (ways.size() <= n_ways_) return;
    ways.erase(std::max_element(ways.begin(), ways.end(),
                                [](const Way& a, const Way& b) { return a.bound < b.bound; }));
    dropped_ = true;
  }

  void finish(const Way& whole) {
    least_ = whole.bound;
    best_ = {runs_.n_parts()};
    for (Way way = whole; way.begin > 0; way = ways_[way.begin][way.before])
      best_.push_back(way.begin);
    std::reverse(best_.begin(), best_.end());
  }

  const Runs& runs_;
  double backward_end_;
  double least_;  // the exposed time that must be beaten
  uint32_t n_ways_;
  std::vector<Rest> rests_;             // per place
  std::vector<std::vector<Way>> ways_;  // per place
  std::vector<uint32_t> best_;
  bool dropped_ = false;
};

}  // namespace

void SplitHead::add(const Run& run) {
  engine = std::max(engine, run.ready) + run.encode;
  link = std::max(link, engine) + run.exchange;
  const double own = run.decode - run.needed;
  const double behind = from_engine;  // for the buckets that forward needs after this bucket
  from_link =
      std::max({run.gather + own, run.gather + from_link, run.gather + run.decode + behind});
  from_engine = std::max(own, run.decode + behind);
}

Cut least_split(const Runs& runs, const SplitHead& head, double backward_end, double target,
                uint32_t n_ways) {
  return Search(runs, head, backward_end, target, n_ways).cut();
}

}  // namespace optimal
