// SIDCo: a threshold from a law fitted to the magnitudes, in stages that each fit what exceeds the
// threshold of the stage before.
// Source: Abdelmoniem, Elzanaty, Alouini, Canini, "An Efficient Statistical-based Gradient
// Compression Technique for Distributed Training Systems", MLSys 2021.
#include <kernels/exceedances.hpp>
#include <methods/steered_selection.hpp>

#include "fit.hpp"

namespace sdk = penstock::sdk;
namespace kernels = penstock::kernels;

namespace {

constexpr uint64_t kMostStages = 16;

class Sidco : public sdk::SteeredCompressor<Sidco> {
 public:
  static inline const sdk::OptionList options{
      density_option(0.001),
      reuse_option(1),
      sdk::choice_option("law", "exponential",
                         {"exponential", "pareto", "gamma_pareto", "gaussian"})
          .summary(
              "what is fitted to the magnitudes; gamma_pareto: a gamma law in the first stage, "
              "generalised Pareto laws in the others; gaussian: the control"),
      sdk::integer_option("stages", 0)
          .at_least(0)
          .at_most(kMostStages)
          .summary("stages of fitting; 0: from 1, adapted for each gradient"),
      sdk::real_option("first_ratio", 0.25)
          .above(0)
          .at_most(1)
          .unit("fraction")
          .summary("share of the entries that the first of several stages lets pass"),
      value_type_option()};

  explicit Sidco(const sdk::Options& values)
      : SteeredCompressor(values, "sidco"),
        law_(law_named(values.choice("law"))),
        stages_(static_cast<uint64_t>(values.integer("stages"))),
        first_ratio_(values.real("first_ratio")) {
    const double most = std::ceil(std::log2(1 / density()));
    most_stages_ = std::clamp<uint64_t>(static_cast<uint64_t>(most), 1, kMostStages);
    if (density() >= first_ratio_) stages_ = most_stages_ = 1;
  }

  struct Fit {
    double threshold = 0;
    double mean_excess = 0;  // over the last stage's origin
  };

  // What a gradient has learned.
  enum Number : uint64_t {
    kCorrection,  // the right threshold over the fitted one
    kStages,      // where they are adapted; 0: not yet
    kRatioSum,    // of estimated counts over wanted ones, since the last change
    kRatios,
    kOrigin,  // of the last stage, in true units; 0: not yet
    kLearned
  };

  float estimate(const sdk::Choice& from, std::span<float> learned, Fit& fit) const {
    fit = fit_of(from.only(), from.unit(), learned);
    return corrected(fit.threshold, learned[kCorrection]);
  }
  void learn(std::span<float> learned, const Fit& fit, const sdk::Settled& settled) const {
    const bool learns = learn_correction(fit.threshold, settled, learned[kCorrection]);
    if (learns && stages_ == 0) adapt_stages(learned, fit, settled.threshold);
  }

 private:
  static constexpr float kControlPeriod = 5;  // estimates between two changes of the stages
  static constexpr double kTolerance = 0.2;

  static sidco::Law law_named(std::string_view name) {
    if (name == "exponential") return sidco::Law::kExponential;
    if (name == "pareto") return sidco::Law::kPareto;
    return name == "gaussian" ? sidco::Law::kGaussian : sidco::Law::kGammaPareto;
  }

  // Entries that stage `stage` of `stages`, from 1, lets pass.
  double wanted(uint64_t n, uint64_t stage, uint64_t stages) const {
    const auto k = static_cast<double>(sdk::kept_count(n, density()));
    if (stage == stages) return k;
    const double step = static_cast<double>(stage - 1) / static_cast<double>(stages - 1);
    return static_cast<double>(n) * first_ratio_ * std::pow(density() / first_ratio_, step);
  }

  // All entries that are not zero.
  sidco::Sample first_sample(kernels::SelectSegment& x) const {
    const bool logs = law_ == sidco::Law::kGammaPareto;
    const kernels::Statistics facts = sdk::first_statistics(x, path(), {.logs = logs});
    const auto count = static_cast<double>(facts.nonzero);
    if (facts.nonzero == 0) return {};
    const double mean = facts.sum_of_magnitudes / count;
    return {count, mean, std::max(0.0, facts.sum_of_squares / count - mean * mean),
            facts.sum_of_logs / count, logs};
  }

  sidco::Sample sample_above(kernels::SelectSegment& x, double origin) const {
    const kernels::Fold* const fold = std::exchange(x.fold, nullptr);
    const kernels::Exceedances facts =
        kernels::exceedances(x.x, x.n, static_cast<float>(origin), path(), fold);
    const auto count = static_cast<double>(facts.count);
    if (facts.count == 0) return {};
    const double mean = facts.sum / count;
    return {count, mean, std::max(0.0, facts.squares / count - mean * mean), 0, false};
  }

  Fit fit_of(kernels::SelectSegment& x, double unit, std::span<float> learned) const {
    if (x.n == 0) return {};
    uint64_t stages = stages_;
    if (stages == 0) stages = learned[kStages] > 0 ? static_cast<uint64_t>(learned[kStages]) : 1;
    if (stages == 1) {
      const sidco::Sample all = first_sample(x);
      return {sidco::excess_for(law_, all, wanted(x.n, 1, 1)), all.mean};
    }
    double origin = learned[kOrigin] * unit;
    sidco::Sample above = origin > 0 ? sample_above(x, origin) : sidco::Sample{};
    const double expected = wanted(x.n, stages - 1, stages);
    if (above.count < expected / 2 || above.count > expected * 2)
      above = run_stages(x, stages, origin);
    const Fit found{origin + sidco::excess_for(law_, above, wanted(x.n, stages, stages)),
                    above.mean};
    // The same fit says where the expected number will exceed next time.
    if (above.count > expected) origin += sidco::excess_for(law_, above, expected);
    if (above.count > 0 && above.count < expected)
      origin -= std::min(origin / 2, above.mean * std::log(expected / above.count));
    learned[kOrigin] = static_cast<float>(origin / unit);
    return found;
  }

  // All stages but the last, each over the data: sets the origin of the last one and returns what
  // exceeds it. Each stage aims at its share of all entries from those that are really left.
  sidco::Sample run_stages(kernels::SelectSegment& x, uint64_t stages, double& origin) const {
    origin = 0;
    sidco::Sample above = first_sample(x);
    for (uint64_t stage = 1; stage < stages; ++stage) {
      const double excess = sidco::excess_for(law_, above, wanted(x.n, stage, stages));
      const sidco::Sample next = sample_above(x, origin + excess);
      if (next.count == 0) break;
      origin += excess;
      above = next;
    }
    return above;
  }

  // Where the fitted threshold lets too many pass, one stage less, and one more where too few: as
  // published, but for this gradient alone. How many it would have let pass follows from the mean
  // excess.
  void adapt_stages(std::span<float> learned, const Fit& found, double right) const {
    if (!(found.mean_excess > 0)) return;
    const double ratio =
        std::exp(std::clamp((right - found.threshold) / found.mean_excess, -3., 3.));
    learned[kRatioSum] += static_cast<float>(ratio);
    learned[kRatios] += 1;
    if (learned[kRatios] < kControlPeriod) return;
    const double mean = learned[kRatioSum] / learned[kRatios];
    float stages = std::max(1.0f, learned[kStages]);
    if (mean > 1 + kTolerance) stages -= 1;
    if (mean < 1 - kTolerance) stages += 1;
    stages = std::clamp(stages, 1.0f, static_cast<float>(most_stages_));
    if (stages != learned[kStages]) learned[kOrigin] = 0;
    learned[kStages] = stages;
    learned[kRatioSum] = learned[kRatios] = 0;
  }

  sidco::Law law_;
  uint64_t stages_;  // 0: adapted
  uint64_t most_stages_;
  double first_ratio_;
};

}  // namespace

PENSTOCK_COMPRESSOR(Sidco, "compressor/sidco", "0.1.0",
                    "sends the entries above a threshold from a fitted law, in stages",
                    "Abdelmoniem et al., An Efficient Statistical-based Gradient Compression "
                    "Technique for Distributed Training Systems, MLSys 2021");
