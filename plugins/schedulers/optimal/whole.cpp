// The search goes from the first bucket to the last, with all ways to cut a prefix side by side.
// Earlier decoding may delay an encoding and so the end: on this machine a state that is ahead in
// every number is not always better. So a way is dropped only if another way is in an equal state,
// or if by Bounds it cannot end before the best known cut.
#include "whole.hpp"

#include "bounds.hpp"

#include <algorithm>
#include <tuple>
#include <utility>
#include <vector>

namespace optimal {

namespace {

// Relative rounding error: bounds are summed in another order than ends, so values that are nearer
// than this count as equal.
constexpr double kRounding = 1e-12;

// A way to cut the gradients before a place, at the time when its last bucket has just been
// encoded.
struct Way {
  double bound = 0;        // no cut that begins with this way ends sooner
  double engine = 0;       // when the engine is free
  double link = 0;         // when the link is free, which is the end of the last exchange
  double decode = 0;       // decoding time of the last bucket
  uint32_t begin = 0;      // place at which the last bucket begins
  uint32_t before = 0;     // index of the way to cut the gradients before that place
  uint32_t n_buckets = 0;  // number of buckets after the head
  uint32_t n_pending = 0;  // buckets not decoded yet, including older buckets of the head
  uint32_t n_own() const { return std::min(n_pending, n_buckets); }
};

class Search {
 public:
  Search(const Runs& runs, const Head& head, double target, uint32_t n_ways)
      : runs_(runs),
        head_(head),
        bounds_(runs, target),
        least_(target),
        n_ways_(n_ways),
        ways_(runs.n_parts()) {}

  Cut cut() {
    begin_with(bounds_.best_ends(head_.engine, head_.link));
    ways_[0] = {Way{.bound = bounds_.soonest(0, head_.engine, head_.link, 0),
                    .engine = head_.engine,
                    .link = head_.link,
                    .n_pending = static_cast<uint32_t>(head_.pending.size())}};
    for (uint32_t begin = 0; begin < runs_.n_parts(); ++begin) extend(begin);
    return {best_, !dropped_};
  }

 private:
  bool is_too_late(double bound) const { return bound >= least_ * (1 - kRounding); }

  // Begins with the best cut of the simpler machine, which is often the best here too.
  void begin_with(const std::vector<uint32_t>& ends) {
    if (ends.empty()) return;
    Head whole = head_;
    uint32_t begin = 0;
    for (uint32_t end : ends) {
      whole.add(runs_.at(begin, end));
      begin = end;
    }
    if (is_too_late(whole.end())) return;
    least_ = whole.end();
    best_ = ends;
  }

  // Adds every bucket that begins at this place to all ways to cut the gradients before it.
  void extend(uint32_t begin) {
    settle(begin);
    for (uint32_t before = 0; before < ways_[begin].size(); ++before) {
      const Way& way = ways_[begin][before];
      if (is_too_late(way.bound)) continue;
      collect_pending(way);
      uint32_t end = begin + 1;
      while (end <= runs_.n_parts() && add_bucket({.begin = begin, .before = before}, end)) ++end;
    }
  }

  // Returns false if the bucket takes too long; then all longer buckets do too.
  bool add_bucket(Way longer, uint32_t end) {
    const Way& way = ways_[longer.begin][longer.before];
    const Run& run = runs_.at(longer.begin, end);
    Engine engine(way.engine, pending_);
    engine.wait_for(run.ready);
    longer.engine = engine.now() + run.encode;
    if (bounds_.is_too_long(longer.begin, longer.engine, least_)) return false;
    longer.link = std::max(way.link, longer.engine) + run.exchange;
    longer.decode = run.decode;
    longer.n_buckets = way.n_buckets + 1;
    longer.n_pending = way.n_pending - engine.n_decoded() + 1;
    const double decoding = left_[engine.n_decoded()] + run.decode;
    if (end == runs_.n_parts()) {
      finish(longer, decoding);
      return false;
    }
    longer.bound = bounds_.soonest(end, longer.engine, longer.link, decoding);
    if (!is_too_late(longer.bound)) ways_[end].push_back(longer);
    return true;
  }

  void finish(const Way& whole, double decoding) {
    if (is_too_late(std::max(whole.engine + decoding, whole.link + whole.decode))) return;
    std::vector<Pending> pending(pending_.end() - (whole.n_pending - 1), pending_.end());
    pending.push_back({whole.link, whole.decode});
    const double ended = Engine(whole.engine, pending).decode_all();
    if (is_too_late(ended)) return;
    least_ = ended;
    best_ = {runs_.n_parts()};
    for (Way way = whole; way.begin > 0; way = ways_[way.begin][way.before])
      best_.push_back(way.begin);
    std::reverse(best_.begin(), best_.end());
  }

  // Collects the buckets that `way` has not decoded yet, the first to arrive first, and the
  // decoding time from each bucket on.
  void collect_pending(const Way& way) {
    pending_.clear();
    const Way* at = &way;
    for (uint32_t i = 0; i < way.n_own(); ++i) {
      pending_.push_back({at->link, at->decode});
      at = &ways_[at->begin][at->before];
    }
    const auto of_head = static_cast<ptrdiff_t>(way.n_pending - way.n_own());
    pending_.insert(pending_.end(), head_.pending.rbegin(), head_.pending.rbegin() + of_head);
    std::reverse(pending_.begin(), pending_.end());
    left_.assign(pending_.size() + 1, 0);
    for (size_t i = pending_.size(); i > 0; --i) left_[i - 1] = left_[i] + pending_[i - 1].decode;
  }

  // Keeps one way per state, with the fewest buckets, and puts the most promising ways first.
  void settle(uint32_t place) {
    std::vector<Way>& ways = ways_[place];
    const auto key = [](const Way& way) {
      return std::make_tuple(way.bound, way.engine, way.link, way.n_pending, way.decode,
                             way.n_buckets, way.begin, way.before);
    };
    std::erase_if(ways, [&](const Way& way) { return is_too_late(way.bound); });
    std::sort(ways.begin(), ways.end(),
              [&](const Way& a, const Way& b) { return key(a) < key(b); });
    const auto equal = [&](const Way& a, const Way& b) { return is_same_state(a, b); };
    ways.erase(std::unique(ways.begin(), ways.end(), equal), ways.end());
    if (ways.size() <= n_ways_) return;
    put_differing_first(ways);
    ways.resize(n_ways_);
    dropped_ = true;
  }

  // Puts one way for each begin of a last bucket first, because ways with an equal begin allow
  // nearly equal continuations.
  void put_differing_first(std::vector<Way>& ways) const {
    std::vector<bool> is_seen(runs_.n_parts());
    std::vector<Way> first, others;
    for (const Way& way : ways) {
      (is_seen[way.begin] ? others : first).push_back(way);
      is_seen[way.begin] = true;
    }
    first.insert(first.end(), others.begin(), others.end());
    ways = std::move(first);
  }

  bool is_same_state(const Way& a, const Way& b) const {
    if (a.engine != b.engine || a.n_pending != b.n_pending || a.n_own() != b.n_own()) return false;
    const Way *one = &a, *other = &b;
    for (uint32_t i = 0; i < a.n_own(); ++i) {
      if (one->link != other->link || one->decode != other->decode) return false;
      one = &ways_[one->begin][one->before];
      other = &ways_[other->begin][other->before];
    }
    return true;
  }

  const Runs& runs_;
  const Head& head_;
  Bounds bounds_;
  double least_;  // the end that must be beaten
  uint32_t n_ways_;
  std::vector<std::vector<Way>> ways_;  // for each place but the last
  std::vector<Pending> pending_;        // of the way that is being extended
  std::vector<double> left_;            // its decoding time from each pending bucket on
  std::vector<uint32_t> best_;
  bool dropped_ = false;
};

}  // namespace

Cut soonest_cut(const Runs& runs, const Head& head, double target, uint32_t n_ways) {
  return Search(runs, head, target, n_ways).cut();
}

}  // namespace optimal
