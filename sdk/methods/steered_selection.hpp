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
#include <methods/device/steered.hpp>
#include <methods/sparse.hpp>

#include <cmath>
#include <concepts>
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

// Chooses the entries of the only segment with |x| >= threshold, after its fold where it still has
// one. If fewer than band.least pass, or the threshold is not positive and finite, it is the
// band.target largest instead; if more than band.most pass, the band.most largest. Zeros are never
// chosen; between equal magnitudes the lower index goes.
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
  // A gentle pull to the middle of the band, and a firmer one where the capacity was reached: how
  // steeply numbers fall with the threshold is not known, about its 3rd power for heavy tails, its
  // 11th for normal ones at 0.1 %.
  const double excess = static_cast<double>(settled.count) / static_cast<double>(band.target);
  const double pull = settled.count == band.most ? 8 : 16;
  settled.threshold *= static_cast<float>(std::exp2(std::log2(excess) / pull));
  return settled;
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

  // An estimate serves for `reuse_period` steps.
  explicit SteeredSelection(double density, int64_t reuse_period = 1)
      : density_(density), reuse_period_(static_cast<float>(reuse_period)) {}

  KeptBand band(uint64_t n) const { return kept_band(n, density_); }
  double density() const { return density_; }

  // Declares the state, with `n_learned` numbers of the method's own behind ours.
  void plan(CompressorNeed& need, uint64_t n_learned) const {
    need.states.add("threshold", 1, kOwnNumbers + n_learned, PENSTOCK_STATE_SOFT);
  }

  // Chooses entries of the only segment for a payload. `state` holds the numbers that plan
  // declared.
  //   float estimate(std::span<float> learned)              a fresh threshold, in units of x
  //   void learn(std::span<float> learned, const Settled&)  after a fresh one
  // Where the segment has a fold, the first sweep does it: that of the estimate, which takes the
  // fold out of the segment, or that of the selection.
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

  // The same on a device, by a law that its kernels know.
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

// A sparse method with the options density and reuse_period that makes an estimate by a fit:
//   static constexpr uint64_t kLearned;  // numbers that it learns for a gradient
//   struct Fit;                          // what learn wants to know of an estimate
//   float estimate(const Choice& from, std::span<float> learned, Fit& fit) const;
//   void learn(std::span<float> learned, const Fit& fit, const Settled& settled) const;
// and, where a device has kernels for it, says which law that is:
//   device::SteeringLaw law() const;
template <typename Method>
concept SteersOnDevices = requires(const Method& method) {
  { method.law() } -> std::same_as<device::SteeringLaw>;
};

template <typename Method>
class SteeredCompressor : public SparseCompressor<Method> {
 public:
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
