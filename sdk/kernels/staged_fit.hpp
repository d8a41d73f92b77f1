// The fit of SIDCo: a threshold from a law, in stages. Each stage fits the entries that exceed the
// threshold of the previous stage. This file has the arithmetic between passes over the data,
// called looks:
//
//   StagedFit fit;
//   fit.begin(rule, n, k, unit, learned);
//   while (fit.looks()) fit.take(rule, sample of the entries above fit.look());
//   ... select with corrected(fit.threshold(), learned[StagedRule::kCorrection]) ...
//   fit.learn(rule, right, learned);
//
// The CPU runs each look when the fit asks for it. On a device, as many looks are queued as a fit
// may take, and the looks that the fit does not take read nothing (cuda/steering.hpp). Numbers that
// a gradient learns are in units of the true gradient. All functions are [any].
#pragma once

#include <kernels/tail_fit.hpp>

namespace penstock::kernels {

struct StagedRule {
  // The numbers that a gradient has learned, one float each, 0 at first.
  enum Number : uint64_t {
    kCorrection,  // the right threshold / the fitted threshold
    kStages,      // number of stages, if adapted; 0: not yet
    kRatioSum,    // of estimated count / wanted count, since the last adaptation
    kRatios,
    kOrigin,  // origin of the last stage; 0: not yet
    kLearned
  };

  TailLaw law = TailLaw::kExponential;
  uint32_t stages = 0;       // 0: the number of stages is adapted
  uint32_t most_stages = 1;  // upper bound of an adapted number
  double density = 1;        // share of entries that the last stage lets pass
  double first_ratio = 1;    // and the first stage, if there are several

  constexpr bool wants_logs() const { return law == TailLaw::kGammaPareto; }
  // The largest number of looks that a fit takes: one over a remembered origin, and one for each
  // stage.
  constexpr uint32_t most_looks() const {
    const uint32_t most = stages > 0 ? stages : most_stages;
    return most == 1 ? 1 : most + 1;
  }
  constexpr uint32_t stages_of(const float* learned) const {
    if (stages > 0) return stages;
    if (!(learned[kStages] > 1)) return 1;
    const auto most = static_cast<float>(most_stages);
    return static_cast<uint32_t>(learned[kStages] < most ? learned[kStages] : most);
  }
};

class StagedFit {
 public:
  // Begins the fit for x[n], n at least 1, whose k largest entries are wanted; `unit` is the unit
  // of x divided by the true gradient's unit.
  PENSTOCK_ON_BOTH void begin(const StagedRule& rule, uint64_t n, uint64_t k, double unit,
                              const float* learned) {
    *this = {};
    n_ = static_cast<double>(n);
    k_ = static_cast<double>(k);
    unit_ = unit;
    stages_ = rule.stages_of(learned);
    const double remembered = stages_ > 1 ? learned[StagedRule::kOrigin] * unit : 0;
    if (!(remembered > 0)) return look_over(1, 0);
    origin_ = remembered;
    look_over(kRemembered, remembered);
  }

  PENSTOCK_ON_BOTH bool looks() const { return look_ >= 0; }
  // The next look samples the entries above this threshold.
  PENSTOCK_ON_BOTH float look() const { return look_; }
  // Whether the next look samples all entries that are not zero, with their logarithms if the law
  // wants them.
  PENSTOCK_ON_BOTH bool looks_at_all() const { return stage_ == 1; }

  // Takes the sample of a look. Each stage aims at its share of all entries, starting from the
  // entries that the previous stage really let pass.
  PENSTOCK_ON_BOTH void take(const StagedRule& rule, const TailSample& found) {
    if (stage_ == kRemembered) {
      const double expected = wanted(rule, stages_ - 1);
      if (found.count < expected / 2 || found.count > expected * 2) {
        origin_ = 0;
        return look_over(1, 0);
      }
      above_ = found;
      return end(rule);
    }
    if (found.count == 0) return end(rule);
    origin_ = next_origin_;
    above_ = found;
    if (stage_ == stages_) return end(rule);
    look_over(stage_ + 1, origin_ + excess_for(rule.law, above_, wanted(rule, stage_)));
  }

  // The threshold that the law alone gives, once looks() is false; 0 if there is nothing to fit.
  PENSTOCK_ON_BOTH double threshold() const { return threshold_; }

  // Updates `learned`. `right` is the threshold that would have been right, 0 if no entry was sent.
  PENSTOCK_ON_BOTH void learn(const StagedRule& rule, float right, float* learned) const {
    if (stages_ > 1) learned[StagedRule::kOrigin] = remembered_origin_;
    if (!learn_correction(threshold_, right, learned[StagedRule::kCorrection])) return;
    if (rule.stages == 0 && above_.mean > 0) adapt_stages(rule, right, learned);
  }

 private:
  static constexpr float kNoLook = -1;
  static constexpr uint32_t kRemembered = 0;  // the last stage, over the origin of an earlier step
  static constexpr float kControlPeriod = 5;  // estimates between two changes of the stages
  static constexpr double kTolerance = 0.2;

  PENSTOCK_ON_BOTH void look_over(uint32_t stage, double origin) {
    stage_ = stage;
    next_origin_ = origin;
    look_ = static_cast<float>(origin);
  }

  // The number of entries that a stage should let pass; stages count from 1.
  PENSTOCK_ON_BOTH double wanted(const StagedRule& rule, uint32_t stage) const {
    if (stage == stages_) return k_;
    const double step = static_cast<double>(stage - 1) / static_cast<double>(stages_ - 1);
    return n_ * rule.first_ratio * std::pow(rule.density / rule.first_ratio, step);
  }

  PENSTOCK_ON_BOTH void end(const StagedRule& rule) {
    look_ = kNoLook;
    threshold_ = origin_ + excess_for(rule.law, above_, wanted(rule, stages_));
    if (stages_ == 1) return;
    // This fit also gives the origin that the expected number of entries will exceed next time.
    const double expected = wanted(rule, stages_ - 1);
    double following = origin_;
    if (above_.count > expected) following += excess_for(rule.law, above_, expected);
    if (above_.count > 0 && above_.count < expected)
      following -= std::min(following / 2, above_.mean * std::log(expected / above_.count));
    remembered_origin_ = static_cast<float>(following / unit_);
  }

  // Uses one stage less if the fitted threshold lets too many entries pass, and one more if it lets
  // too few pass: as published, but for each gradient separately. The mean excess gives the number
  // of entries that it would have let pass.
  PENSTOCK_ON_BOTH void adapt_stages(const StagedRule& rule, double right, float* learned) const {
    float& sum = learned[StagedRule::kRatioSum];
    float& ratios = learned[StagedRule::kRatios];
    float& stages = learned[StagedRule::kStages];
    sum += static_cast<float>(std::exp(std::clamp((right - threshold_) / above_.mean, -3., 3.)));
    ratios += 1;
    if (ratios < kControlPeriod) return;
    const double mean = sum / ratios;
    float adapted = std::max(1.0f, stages);
    if (mean > 1 + kTolerance) adapted -= 1;
    if (mean < 1 - kTolerance) adapted += 1;
    adapted = std::clamp(adapted, 1.0f, static_cast<float>(rule.most_stages));
    if (adapted != stages) learned[StagedRule::kOrigin] = 0;
    stages = adapted;
    sum = ratios = 0;
  }

  double n_ = 0;
  double k_ = 0;
  double unit_ = 1;
  uint32_t stages_ = 0;
  uint32_t stage_ = 0;  // the stage that fits the next look's sample
  TailSample above_;    // the sample above origin_
  double origin_ = 0;   // of the stage that fitted above_
  double next_origin_ = 0;
  double threshold_ = 0;
  float remembered_origin_ = 0;
  float look_ = kNoLook;
};

}  // namespace penstock::kernels
