// From the first bucket to the last, all ways to cut a prefix side by side. Whatever is decoded
// sooner may push an encoding back, and so end later: on this machine a state that is ahead in
// everything is not always the better one. So of two ways one is forgotten only if the other is in
// the same state, or if by Bounds it cannot end before the best that is known.
#include "whole.hpp"

#include "bounds.hpp"

#include <algorithm>
#include <tuple>
#include <utility>
#include <vector>

namespace optimal {

namespace {

// Bounds are added up in another order than ends: what is nearer than this is equal.
constexpr double kRounding = 1e-12;

// A way to cut the gradients before a place, when its last bucket has just been encoded.
struct Way {
  double bound = 0;        // no cut that begins like this ends sooner
  double engine = 0;       // free from here on
  double link = 0;         // likewise, and when the last exchange ends
  double decode = 0;       // of the last bucket
  uint32_t begin = 0;      // of the last bucket
  uint32_t before = 0;     // which way of that place
  uint32_t n_buckets = 0;  // behind the head
  uint32_t n_pending = 0;  // those of the head, which are older, among them
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

  // What the simpler machine would do is often best here too.
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

  // All buckets that begin here, behind all ways to cut what is before.
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

  // False if it takes too long, and so do all that end later.
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

  // What way left pending, the first to arrive first, and how long it takes from each on.
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

  // Those of equal state once, by the fewest buckets, and the most promising first.
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

  // One for each begin of a last bucket: ways that share it differ little in what may follow.
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
  double least_;  // the end that is to be beaten
  uint32_t n_ways_;
  std::vector<std::vector<Way>> ways_;  // per place but the last
  std::vector<Pending> pending_;        // of the way that is being extended
  std::vector<double> left_;            // its time to decode from each on
  std::vector<uint32_t> best_;
  bool dropped_ = false;
};

}  // namespace

Cut soonest_cut(const Runs& runs, const Head& head, double target, uint32_t n_ways) {
  return Search(runs, head, target, n_ways).cut();
}

}  // namespace optimal
