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

// Buckets on the link or behind it that are not decoded yet.
struct Pending {
  double exchange_end = 0;
  double decode = 0;
  bool operator==(const Pending&) const = default;
};

// A way to cut the gradients before a place, when its last bucket has just been encoded.
struct Way {
  double bound = 0;     // no cut that begins like this ends sooner
  double engine = 0;    // free from here on
  double link = 0;      // likewise, and when the last exchange ends
  double decode = 0;    // of the last bucket
  uint32_t begin = 0;   // of the last bucket
  uint32_t before = 0;  // which way of that place
  uint32_t n_buckets = 0;
  uint32_t n_decoded = 0;
  uint32_t n_pending() const { return n_buckets - n_decoded; }
};

// The engine from the end of one encoding to the start of the next.
class Engine {
 public:
  Engine(double free_at, const std::vector<Pending>& pending) : now_(free_at), pending_(pending) {}

  // Decodes all that has arrived, and while nothing is ready also what arrives first.
  void wait_for(double ready) {
    while (n_decoded_ < pending_.size()) {
      const double arrives = pending_[n_decoded_].exchange_end;
      if (arrives > now_ && ready <= now_) return;
      if (arrives > now_ && ready < arrives) break;
      decode();
    }
    now_ = std::max(now_, ready);
  }
  double decode_all() {
    while (n_decoded_ < pending_.size()) decode();
    return now_;
  }
  double now() const { return now_; }
  uint32_t n_decoded() const { return n_decoded_; }

 private:
  void decode() {
    const Pending& next = pending_[n_decoded_++];
    now_ = std::max(now_, next.exchange_end) + next.decode;
  }

  double now_;
  const std::vector<Pending>& pending_;
  uint32_t n_decoded_ = 0;
};

class Search {
 public:
  Search(const Runs& runs, double target)
      : runs_(runs),
        bounds_(runs, target),
        least_(target),
        n_ways_(most_ways(runs.n_parts())),
        ways_(runs.n_parts()) {}

  Cut cut() {
    begin_with(bounds_.best_ends());
    ways_[0] = {Way{.bound = bounds_.soonest(0, 0, 0, 0)}};
    for (uint32_t begin = 0; begin < runs_.n_parts(); ++begin) extend(begin);
    return {best_, !dropped_};
  }

 private:
  bool is_too_late(double bound) const { return bound >= least_ * (1 - kRounding); }

  // What the simpler machine would do is often best here too.
  void begin_with(const std::vector<uint32_t>& ends) {
    if (ends.empty()) return;
    double free_at = 0, link = 0;
    uint32_t begin = 0;
    std::vector<Pending> pending;
    for (uint32_t end : ends) {
      const Run& run = runs_.at(begin, end);
      Engine engine(free_at, pending);
      engine.wait_for(run.ready);
      pending.erase(pending.begin(), pending.begin() + engine.n_decoded());
      free_at = engine.now() + run.encode;
      link = std::max(link, free_at) + run.exchange;
      pending.push_back({link, run.decode});
      begin = end;
    }
    const double ended = Engine(free_at, pending).decode_all();
    if (is_too_late(ended)) return;
    least_ = ended;
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
    longer.n_decoded = way.n_decoded + engine.n_decoded();
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
    std::vector<Pending> pending(pending_.end() - (whole.n_pending() - 1), pending_.end());
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
    for (uint32_t i = 0; i < way.n_pending(); ++i) {
      pending_.push_back({at->link, at->decode});
      at = &ways_[at->begin][at->before];
    }
    std::reverse(pending_.begin(), pending_.end());
    left_.assign(pending_.size() + 1, 0);
    for (size_t i = pending_.size(); i > 0; --i) left_[i - 1] = left_[i] + pending_[i - 1].decode;
  }

  // Those of equal state once, by the fewest buckets, and the most promising first.
  void settle(uint32_t place) {
    std::vector<Way>& ways = ways_[place];
    const auto key = [](const Way& way) {
      return std::make_tuple(way.bound, way.engine, way.link, way.n_pending(), way.decode,
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
    if (a.engine != b.engine || a.n_pending() != b.n_pending()) return false;
    const Way *one = &a, *other = &b;
    for (uint32_t i = 0; i < a.n_pending(); ++i) {
      if (one->link != other->link || one->decode != other->decode) return false;
      one = &ways_[one->begin][one->before];
      other = &ways_[other->begin][other->before];
    }
    return true;
  }

  const Runs& runs_;
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

Cut soonest_cut(const Runs& runs, double target) {
  return Search(runs, target).cut();
}

}  // namespace optimal
