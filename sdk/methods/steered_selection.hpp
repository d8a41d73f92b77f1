// Selection of entries by an estimated threshold that learns from its earlier selections. The
// methods Gaussian-k, RedSync and SIDCo share this part; each has its own estimate.
//
// Published estimators miss the wanted number of entries by factors. Here each gradient remembers,
// in a soft state, which threshold would have been right. If a step's threshold still misses the
// band around the wanted number, the step sends exactly the wanted number of largest entries. Each
// rank has its own state: no data that ranks share depends on it.
#pragma once

#include <kernels/select.hpp>
#include <kernels/statistics.hpp>
#include <methods/device/steered.hpp>
#include <methods/sparse.hpp>

#include <cmath>
#include <concepts>
#include <utility>

namespace penstock::sdk {

// The number of entries that a step should send, and the range of numbers that it may send.
struct KeptBand {
  uint64_t target;
  uint64_t least;
  uint64_t most;
  float slack = 1;  // thresholds are lowered by this factor before use
};

// A band that allows exactly the target. A threshold then only has to let enough entries pass, so
// thresholds are lowered.
inline KeptBand exact_band(const KeptBand& band) {
  return {band.target, band.target, band.target, 0.9f};
}

// The band of a density: its number of entries, and a tenth of that number to either side.
inline KeptBand kept_band(uint64_t n, double density) {
  const uint64_t target = kept_count(n, density);
  return {target, target - target / 10, std::min(n, target + target / 10), 1};
}

// The outcome of a selection by threshold.
struct Settled {
  uint64_t count;   // entries chosen
  float threshold;  // the threshold that would have let about the wanted number pass
  bool hit;         // the number of entries that passed was inside the band
};

// Chooses the entries of the only segment with |x| >= threshold; if the segment still has a fold,
// the fold is done first. If fewer than band.least entries pass, or the threshold is not positive
// and finite, the band.target largest entries are chosen instead; if more than band.most pass, the
// band.most largest. Zeros are never chosen; between equal magnitudes the lower index is chosen.
inline Settled select_near(const Choice& from, float threshold, const KeptBand& band) {
  kernels::SelectSegment& target = from.only();
  Settled settled{0, threshold, true};
  target.count = 0;
  if (std::isfinite(threshold) && threshold > 0) from.above(threshold, band.most);
  if (target.count < band.least) {
    settled.hit = false;
    from.above(0, band.target);
  }
  settled.count = target.count;
  if (settled.count == 0) return {0, 0, false};
  if (!settled.hit || settled.count == band.most) {  // the threshold says nothing about the number
    const float lowest = from.smallest();
    settled.hit = settled.hit && lowest < settled.threshold * 1.25f;
    settled.threshold = lowest;
  }
  // The threshold is pulled gently to the middle of the band, and more firmly if the capacity was
  // reached. It is not known how steeply the number of entries falls with the threshold: about with
  // its 3rd power for heavy tails, with its 11th for normal tails at 0.1 %.
  const double excess = static_cast<double>(settled.count) / static_cast<double>(band.target);
  const double pull = settled.count == band.most ? 8 : 16;
  settled.threshold *= static_cast<float>(std::exp2(std::log2(excess) / pull));
  return settled;
}

// The statistics that an estimate needs first; their sweep does the target's fold if it still has
// one. If it finds that work is not finite, these are the statistics of zeros: the payload will be
// absent, and laws are fitted to finite numbers only.
inline kernels::Statistics first_statistics(kernels::SelectSegment& target, kernels::CodePath path,
                                            kernels::StatisticsRequest request = {}) {
  request.fold = std::exchange(target.fold, nullptr);
  const kernels::Statistics found = kernels::statistics(target.x, target.n, request, path);
  return found_finite(request.fold) ? found : kernels::Statistics{};
}

class SteeredSelection {
 public:
  static constexpr uint32_t kState = 0;       // index of the soft state
  static constexpr uint64_t kOwnNumbers = 2;  // of a state, before the numbers of the method

  static Option density_option(double value) {
    return sdk::density_option(value, "share of the entries that is sent, within a tenth");
  }

  // An estimate is used for `reuse_period` steps.
  explicit SteeredSelection(double density, int64_t reuse_period = 1)
      : density_(density), reuse_period_(static_cast<float>(reuse_period)) {}

  KeptBand band(uint64_t n) const { return kept_band(n, density_); }
  double density() const { return density_; }

  // Declares the state: the numbers of this class, then `n_learned` numbers of the method.
  void plan(CompressorNeed& need, uint64_t n_learned) const {
    need.states.add("threshold", 1, kOwnNumbers + n_learned, PENSTOCK_STATE_SOFT);
  }

  // Chooses entries of the only segment for a payload. `state` holds the numbers that plan
  // declared.
  //   float estimate(std::span<float> learned)              a fresh threshold, in units of x
  //   void learn(std::span<float> learned, const Settled&)  after a fresh one
  // If the segment has a fold, the first sweep does it: the sweep of the estimate, which removes
  // the fold from the segment, or the sweep of the selection.
  template <typename Estimate, typename Learn>
  void choose(const Choice& from, const KeptBand& band, std::span<float> state, Estimate&& estimate,
              Learn&& learn) const {
    float& last = state[0];  // in true units; 0: none
    float& age = state[1];   // steps since the last estimate
    const std::span<float> learned = state.subspan(kOwnNumbers);
    const auto scale = static_cast<float>(from.unit());
    const bool reuse = last > 0 && age < reuse_period_;
    const float threshold = reuse ? last * scale : estimate(learned);
    const Settled settled = select_near(from, threshold * band.slack, band);
    if (!reuse) learn(learned, settled);
    last = settled.threshold / scale;
    age = settled.hit ? (reuse ? age + 1 : 1) : reuse_period_;
  }

  // Chooses on a device, by a law that its kernels implement.
  void choose(const device::Choice& from, const KeptBand& band, std::span<float> state,
              const device::SteeringLaw& law) const {
    device::choose_steered(from, law, rules(band, from.unit()), state);
  }
  kernels::cuda::SteeringRules rules(const KeptBand& band, double unit) const {
    return {
        {band.target, band.least, band.most}, band.slack, static_cast<float>(unit), reuse_period_};
  }

 private:
  double density_;
  float reuse_period_;
};

// A sparse method with the options density and reuse_period whose estimate is a fit. It has
//   static constexpr uint64_t kLearned;  // numbers that it learns for a gradient
//   struct Fit;                          // the data of an estimate that learn needs
//   float estimate(const Choice& from, std::span<float> learned, Fit& fit) const;
//   void learn(std::span<float> learned, const Fit& fit, const Settled& settled) const;
// and, if there are device kernels for its fit, names their law:
//   device::SteeringLaw law() const;
template <typename Method>
concept SteersOnDevices = requires(const Method& method) {
  { method.law() } -> std::same_as<device::SteeringLaw>;
};

template <typename Method>
class SteeredCompressor : public SparseCompressor<Method> {
 public:
  static constexpr bool kInspects = true;
  static Option density_option(double value) { return SteeredSelection::density_option(value); }
  static Option reuse_option(int64_t steps) {
    return integer_option("reuse_period", steps)
        .at_least(1)
        .at_most(1024)
        .unit("steps")
        .summary(
            "a threshold is estimated once in this number of steps, and reused in the other steps");
  }

  uint64_t most(uint64_t n) const { return method().band(n).most; }
  KeptBand band(uint64_t n) const { return selection_.band(n); }

  void plan(const PlanCall& call, const Item& item, CompressorNeed& need) {
    SparseCompressor<Method>::plan(call, item, need);
    selection_.plan(need, Method::kLearned);
  }
  void choose(const Choice& from) const {
    choose_with(from, from.item.state(SteeredSelection::kState));
  }
  void choose(const device::Choice& from) const requires SteersOnDevices<Method> {
    selection_.choose(from, method().band(from.n()), from.item.state(SteeredSelection::kState),
                      method().law());
  }

 protected:
  SteeredCompressor(const Options& values, std::string_view name)
      : SparseCompressor<Method>(values, name),
        selection_(values.real("density"), values.integer("reuse_period")) {}

  double density() const { return selection_.density(); }
  kernels::cuda::SteeringRules rules(const Call& call, const Item& item,
                                     const KeptBand& band) const {
    return selection_.rules(band, work_unit(call, item));
  }

  void choose_with(const Choice& from, std::span<float> state) const {
    typename Method::Fit fit{};
    selection_.choose(
        from, method().band(from.only().n), state,
        [&](std::span<float> learned) { return method().estimate(from, learned, fit); },
        [&](std::span<float> learned, const Settled& settled) {
          method().learn(learned, fit, settled);
        });
  }

 private:
  const Method& method() const { return static_cast<const Method&>(*this); }
  SteeredSelection selection_;
};

}  // namespace penstock::sdk
