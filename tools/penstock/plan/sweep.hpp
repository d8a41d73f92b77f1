// Which scheme is best where: over speeds of the link, or over numbers of ranks.
#pragma once

#include "tools/penstock/plan/simulate.hpp"

#include <string>
#include <vector>

namespace penstock::command {

// All schemes of a command on one model: what they come to on any cluster.
class Study {
 public:
  // All of them must outlive it. `worth`: the share of a step that compression has to save, since
  // it may cost steps.
  Study(const std::vector<SchemeFile>& schemes, const ModelProfile& profile, const CostTable& costs,
        double worth)
      : schemes_(schemes), profile_(profile), costs_(costs), worth_(worth) {}

  // One outcome for each scheme, in their order.
  Result<std::vector<Prediction>> at(const Cluster& cluster);
  // The index of the scheme to take: of those that compress the one with the shortest step, if that
  // is worth it, else of the others. Those of open size are left out.
  size_t best(const std::vector<Prediction>& outcomes) const;

 private:
  const std::vector<SchemeFile>& schemes_;
  const ModelProfile& profile_;
  const CostTable& costs_;
  double worth_;
  // Of the last number of ranks: sweeps over speeds stay there, those over ranks do not come back.
  uint32_t ranks_ = 0;
  std::vector<Rehearsal> rehearsals_;
};

// Of those that compress, or of those that do not, the index of the shortest step, the first among
// equals; as many as there are outcomes where there is none. Those of open size are left out.
size_t fastest(const std::vector<Prediction>& outcomes, bool compresses);

enum class SweptFor { bandwidth, ranks };

// "bandwidth=10mbit..100gbit", "ranks=2..1024".
struct SweepRange {
  SweptFor what = SweptFor::bandwidth;
  double first = 0, last = 0;
  std::string name() const { return what == SweptFor::bandwidth ? "bandwidth" : "ranks"; }
};
// INVALID_ARGUMENT names the text and what was expected.
Result<SweepRange> sweep_range(const std::string& text);

struct SweepPoint {
  double at = 0;                                   // bits per second, or ranks
  std::vector<double> step_us, exposed_us, bytes;  // of each scheme
  size_t best = 0;
};
// From here on, and up to the next one, another scheme is best. A speed is exact to one part in
// a thousand, a number of ranks is the first one.
struct Crossover {
  double at = 0;
  size_t from = 0, to = 0;
};
struct Sweep {
  SweepRange range;
  std::vector<SweepPoint> points;
  std::vector<Crossover> crossovers;
};

// Speeds of 1, 2 and 5 in every decade, ranks doubled: whole hosts of as many ranks as `cluster`
// has.
Result<Sweep> sweep(Study& study, const Cluster& cluster, const SweepRange& range);

// "1 Gbit/s", "16 ranks".
std::string place_text(SweptFor what, double at);

}  // namespace penstock::command
