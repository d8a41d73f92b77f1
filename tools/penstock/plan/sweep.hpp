// Finds the best scheme over a range of link speeds or of numbers of ranks.
#pragma once

#include "tools/penstock/plan/simulate.hpp"

#include <string>
#include <vector>

namespace penstock::command {

// Predicts all schemes of a command for one model, on any cluster.
class Study {
 public:
  // All arguments must outlive this object. `worth`: the share of a step that compression has to
  // save to be chosen, because compression may need more steps.
  Study(const std::vector<SchemeFile>& schemes, const ModelProfile& profile, const CostTable& costs,
        double worth)
      : schemes_(schemes), profile_(profile), costs_(costs), worth_(worth) {}

  // Returns one prediction for each scheme, in the order of the schemes.
  Result<std::vector<Prediction>> at(const Cluster& cluster);
  // The index of the scheme to take: the fastest scheme that compresses, if it saves enough;
  // otherwise the fastest scheme that does not compress. Schemes of open size are left out.
  size_t best(const std::vector<Prediction>& outcomes) const;

 private:
  const std::vector<SchemeFile>& schemes_;
  const ModelProfile& profile_;
  const CostTable& costs_;
  double worth_;
  // The rehearsals for the last number of ranks. A sweep over speeds keeps that number; a sweep
  // over ranks does not return to an earlier number.
  uint32_t ranks_ = 0;
  std::vector<Rehearsal> rehearsals_;
};

// The index of the shortest step among the schemes that compress, or among the schemes that do not;
// the first of equal ones. If there is no such scheme, the number of outcomes. Schemes of open size
// are left out.
size_t fastest(const std::vector<Prediction>& outcomes, bool compresses);

enum class SweptFor { bandwidth, ranks };

// The range of a sweep: "bandwidth=10mbit..100gbit" or "ranks=2..1024".
struct SweepRange {
  SweptFor what = SweptFor::bandwidth;
  double first = 0, last = 0;
  std::string name() const { return what == SweptFor::bandwidth ? "bandwidth" : "ranks"; }
};
// Reads a range. INVALID_ARGUMENT names the text and the expected form.
Result<SweepRange> sweep_range(const std::string& text);

struct SweepPoint {
  double at = 0;                                   // bits per second, or ranks
  std::vector<double> step_us, exposed_us, bytes;  // by scheme
  size_t best = 0;
};
// A change of the best scheme: `to` is best from `at` up to the next crossover. A speed is exact to
// one part in a thousand; a number of ranks is the first at which `to` is best.
struct Crossover {
  double at = 0;
  size_t from = 0, to = 0;
};
struct Sweep {
  SweepRange range;
  std::vector<SweepPoint> points;
  std::vector<Crossover> crossovers;
};

// Predicts speeds of 1, 2 and 5 in every decade, or doubled numbers of ranks: whole hosts with as
// many ranks per host as `cluster` has.
Result<Sweep> sweep(Study& study, const Cluster& cluster, const SweepRange& range);

// Writes a place of a sweep: "1 Gbit/s", "16 ranks".
std::string place_text(SweptFor what, double at);

}  // namespace penstock::command
