// How soon a plan could end at best: the exact dynamic program of a simpler machine.
#pragma once

#include "runs.hpp"

#include <algorithm>
#include <limits>

namespace optimal {

// The machine without the work of decoding, but for that of the last bucket:
//   engine[b] = max(engine[b-1], ready[b]) + encode[b]
//   link[b]   = max(link[b-1], engine[b]) + exchange[b]
//   end       = link[last] + decode[last]
// In the real one decoding only delays, so no cut ends sooner there than here; and the engine has
// to do all the work of what is left. For each place the ways to cut what comes behind it are kept
// as functions of when engine and link are free,
//   end = max(engine + from_engine, link + from_link, from_ready),
// without those that another is below everywhere.
class Bounds {
 public:
  // Ways that cannot end before `target` are left out.
  Bounds(const Runs& runs, double target);

  // The soonest end of what comes behind place `begin`; infinite where none is before the target.
  // `pending` is decoding that the engine still has to do.
  double soonest(uint32_t begin, double engine, double link, double pending) const {
    double soonest = kNever;
    for (const Way& way : ways_[begin])
      soonest = std::min(
          soonest, std::max({engine + way.from_engine, link + way.from_link, way.from_ready}));
    return std::max(soonest, engine + pending + least_work_[begin]);
  }
  // Whether a bucket that begins here and is encoded at `encoded` cannot end before `target`: all
  // is still to be exchanged. Then no longer one can, for it is encoded no sooner.
  bool is_too_long(uint32_t begin, double encoded, double target) const {
    return encoded + least_exchange_[begin] >= target;
  }
  // The cut that ends soonest on the simpler machine, or nearly so where ways were joined, if
  // engine and link are free then; none where no end is finite.
  std::vector<uint32_t> best_ends(double engine, double link) const;

  static constexpr double kNever = std::numeric_limits<double>::infinity();

 private:
  struct Way {
    double from_engine = 0;
    double from_link = 0;
    double from_ready = 0;
    uint32_t end = 0;   // of its first bucket
    uint32_t next = 0;  // which way of the place where that ends
  };
  void add_up(uint32_t begin);
  void extend(uint32_t begin, double target);
  void keep(std::vector<Way>& ways, const Way& way);

  const Runs& runs_;
  std::vector<std::vector<Way>> ways_;  // per place
  std::vector<double> least_work_;      // of the engine, behind each place
  std::vector<double> least_exchange_;  // likewise, of the link
};

}  // namespace optimal
