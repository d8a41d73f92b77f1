// Lower bounds for the end of a plan: the exact dynamic program of a simpler machine.
#pragma once

#include "runs.hpp"

#include <algorithm>
#include <limits>

namespace optimal {

// The simpler machine decodes only the last bucket:
//   engine[b] = max(engine[b-1], ready[b]) + encode[b]
//   link[b]   = max(link[b-1], engine[b]) + exchange[b]
//   end       = link[last] + decode[last]
// On the real machine the work of decoding can only delay, so no cut ends sooner there than here.
// On both machines the engine must do all the work of the remaining buckets. For each place, the
// ways to cut the gradients behind it are kept as functions of the times when engine and link are
// free,
//   end = max(engine + from_engine, link + from_link, from_ready).
// A way is dropped if another way is below it everywhere.
class Bounds {
 public:
  // Drops ways that cannot end before `target`.
  Bounds(const Runs& runs, double target);

  // The soonest end of the gradients behind place `begin`; infinite if no way ends before the
  // target. `pending` is the time of the decoding that the engine still has to do.
  double soonest(uint32_t begin, double engine, double link, double pending) const {
    double soonest = kNever;
    for (const Way& way : ways_[begin])
      soonest = std::min(
          soonest, std::max({engine + way.from_engine, link + way.from_link, way.from_ready}));
    return std::max(soonest, engine + pending + least_work_[begin]);
  }
  // Whether a bucket that begins at place `begin` and is encoded at `encoded` cannot end before
  // `target`, because everything must still be exchanged. Then no longer bucket can, because it is
  // encoded no sooner.
  bool is_too_long(uint32_t begin, double encoded, double target) const {
    return encoded + least_exchange_[begin] >= target;
  }
  // The cut that ends soonest on the simpler machine (or nearly so, if ways were joined) when
  // engine and link are free at these times. Empty if no way ends before the target.
  std::vector<uint32_t> best_ends(double engine, double link) const;

  static constexpr double kNever = std::numeric_limits<double>::infinity();

 private:
  struct Way {
    double from_engine = 0;
    double from_link = 0;
    double from_ready = 0;
    uint32_t end = 0;   // place at which the first bucket ends
    uint32_t next = 0;  // index of the way that follows, at that place
  };
  void add_up(uint32_t begin);
  void extend(uint32_t begin, double target);
  void keep(std::vector<Way>& ways, const Way& way);

  const Runs& runs_;
  std::vector<std::vector<Way>> ways_;  // per place
  std::vector<double> least_work_;      // least work of the engine behind each place
  std::vector<double> least_exchange_;  // least time of the link behind each place
};

}  // namespace optimal
