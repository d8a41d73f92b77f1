// Selection by an estimated threshold that learns from what it selected: the part that Gaussian-k,
// RedSync and SIDCo share. They differ in how they estimate.
//
// Published estimators miss the wanted number of entries by factors. Here each gradient remembers,
// in a soft state, which threshold would have been right, and a step whose threshold still misses
// the band around the wanted number sends the wanted number of largest entries, exactly. The state
// is the rank's own: nothing that ranks share depends on it.
#pragma once

#include <kernels/select.hpp>
#include <kernels/statistics.hpp>
#include <methods/agreed.hpp>
#include <methods/density.hpp>
#include <methods/folded.hpp>
#include <methods/sparse_values.hpp>

#include <bit>
#include <cmath>
#include <utility>

namespace penstock::sdk {

// How many entries a step should send, and what it may send instead.
struct KeptBand {
  uint64_t target;
  uint64_t least;
  uint64_t most;
  float slack = 1;  // thresholds are lowered by this factor before use
};

// Exactly the target: thresholds only have to let enough pass, and are lowered so that they do.
inline KeptBand exact_band(const KeptBand& band) {
  return {band.target, band.target, band.target, 0.9f};
}

// What the density asks for, and a tenth of it to either side.
inline KeptBand kept_band(uint64_t n, double density) {
  const uint64_t target = kept_count(n, density);
  return {target, target - target / 10, std::min(n, target + target / 10), 1};
}

// What came of a threshold.
struct Settled {
  uint64_t count;   // entries chosen
  float threshold;  // the one that would have passed about the wanted number
  bool hit;         // the number that passed was inside the band
};

// Chooses the entries of target.x with |x| >= threshold, after its fold where it still has one. If
// fewer than band.least pass, or the threshold is not positive and finite, it is the band.target
// largest instead; if more than band.most pass, the band.most largest. Zeros are never chosen;
// between equal magnitudes the lower index goes.
inline Settled select_near(kernels::SelectSegment& target, float threshold, const KeptBand& band,
                           kernels::SelectScratch scratch, kernels::CodePath path) {
  Settled settled{0, threshold, true};
  target.count = 0;
  if (std::isfinite(threshold) && threshold > 0)
    kernels::select_above(target, threshold, band.most, scratch, path);
  if (target.count < band.least) {
    settled.hit = false;
    kernels::select_above(target, 0, band.target, scratch, path);
  }
  settled.count = target.count;
  if (settled.count == 0) return {0, 0, false};
  if (!settled.hit || settled.count == band.most) {  // the threshold says nothing about the number
    float lowest = std::fabs(target.x[target.indices[0]]);
    for (uint64_t j = 1; j < settled.count; ++j)
      lowest = std::min(lowest, std::fabs(target.x[target.indices[j]]));
    settled.hit = settled.hit && lowest < settled.threshold * 1.25f;
    settled.threshold = lowest;
  }
  // A gentle pull to the middle of the band, and a firmer one where the capacity was reached: how
  // steeply numbers fall with the threshold is not known, about its 3rd power for heavy tails, its
  // 11th for normal ones at 0.1 %.
  const double excess = static_cast<double>(settled.count) / static_cast<double>(band.target);
  const double pull = settled.count == band.most ? 8 : 16;
  settled.threshold *= static_cast<float>(std::exp2(std::log2(excess) / pull));
  return settled;
}

// The entries of an item's work that compete, and room for those that go in section 0 of its
// payload.
inline kernels::SelectSegment entries_of(const Item& item, const PayloadWriter& payload,
                                         const kernels::Fold* fold) {
  kernels::SelectSegment target{item.work().data(), item.numel(), payload.room<uint32_t>(0).data(),
                                nullptr};
  target.fold = fold;
  return target;
}

// What an estimate looks at first: does the fold where the target still has one.
inline kernels::Statistics first_statistics(kernels::SelectSegment& target, kernels::CodePath path,
                                            kernels::StatisticsRequest request = {}) {
  request.fold = std::exchange(target.fold, nullptr);
  return kernels::statistics(target.x, target.n, request, path);
}

class SteeredSelection {
 public:
  static constexpr uint32_t kState = 0;       // index of the soft state
  static constexpr uint64_t kOwnNumbers = 2;  // of a state, before what the method learned

  static Option density_option(double value) {
    return sdk::density_option(value, "share of the entries that is sent, within a tenth");
  }
  static Option reuse_option(int64_t steps) {
    return integer_option("reuse_period", steps)
        .at_least(1)
        .at_most(1024)
        .unit("steps")
        .summary("a threshold is estimated in one step of so many and reused in the others");
  }

  SteeredSelection(const Options& options, std::string_view method)
      : method_(method),
        density_(options.real("density")),
        reuse_period_(static_cast<float>(options.integer("reuse_period"))),
        path_(agreed_code_path("select")) {}

  // A method that makes an estimate in every step.
  SteeredSelection(double density, std::string_view method)
      : method_(method), density_(density), reuse_period_(1), path_(agreed_code_path("select")) {}

  double density() const { return density_; }
  kernels::CodePath path() const { return path_; }

  // Declares the state, with `n_learned` numbers of the method's own behind ours, and the scratch,
  // with `own_bytes` of the method's own in front of ours. Throws INVALID_ARGUMENT for an item that
  // 32 bits cannot number.
  KeptBand plan(const Item& item, CompressorNeed& need, uint64_t n_learned,
                uint64_t own_bytes = 0) const {
    check_indexable(item, method_);
    const uint64_t n = item.numel();
    const KeptBand band = kept_band(n, density_);
    need.states.add("threshold", 1, kOwnNumbers + n_learned, PENSTOCK_STATE_SOFT);
    need.scratch_bytes = aligned(own_bytes) + kernels::select_scratch_bytes(n, band.most);
    return band;
  }

  // Chooses entries of target.x for a payload. `state` holds the numbers that plan declared.
  //   float estimate(std::span<float> learned)              a fresh threshold, in units of x
  //   void learn(std::span<float> learned, const Settled&)  after a fresh one
  // Where the target has a fold, the first sweep does it: that of the estimate, which takes the
  // fold out of the target, or that of the selection.
  template <typename Estimate, typename Learn>
  Settled choose(const Call& call, kernels::SelectSegment& target, double unit,
                 const KeptBand& band, std::span<float> state, uint64_t own_bytes,
                 Estimate&& estimate, Learn&& learn) const {
    float& last = state[0];  // in true units; 0: none
    float& age = state[1];   // steps since the last estimate
    const std::span<float> learned = state.subspan(kOwnNumbers);
    const kernels::SelectScratch scratch{
        static_cast<char*>(call.exec->scratch) + aligned(own_bytes),
        call.exec->scratch_bytes - aligned(own_bytes)};
    const auto scale = static_cast<float>(unit);
    const bool reuse = last > 0 && age < reuse_period_;
    const float threshold = reuse ? last * scale : estimate(learned);
    const Settled settled = select_near(target, threshold * band.slack, band, scratch, path_);
    if (!reuse) learn(learned, settled);
    last = settled.threshold / scale;
    age = settled.hit ? (reuse ? age + 1 : 1) : reuse_period_;
    return settled;
  }

 private:
  static uint64_t aligned(uint64_t bytes) { return (bytes + 63) / 64 * 64; }

  std::string_view method_;
  double density_;
  float reuse_period_;
  kernels::CodePath path_;
};

}  // namespace penstock::sdk
