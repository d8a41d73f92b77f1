// SIDCo: a threshold from a law that is fitted to the magnitudes, in stages. Each stage fits the
// magnitudes above the threshold of the stage before.
// Source: Abdelmoniem, Elzanaty, Alouini, Canini, "An Efficient Statistical-based Gradient
// Compression Technique for Distributed Training Systems", MLSys 2021.
#include <kernels/staged_fit.hpp>
#include <methods/steered_selection.hpp>

namespace sdk = penstock::sdk;
namespace kernels = penstock::kernels;

namespace {

constexpr uint32_t kMostStages = 16;

class Sidco : public sdk::SteeredCompressor<Sidco> {
 public:
  static inline const sdk::OptionList options{
      density_option(0.001),
      reuse_option(1),
      sdk::choice_option("law", "exponential",
                         {"exponential", "pareto", "gamma_pareto", "gaussian"})
          .summary(
              "the law that is fitted to the magnitudes; gamma_pareto: a gamma law in the first "
              "stage, generalised Pareto laws in the others; gaussian: the control"),
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
      : SteeredCompressor(values, "sidco"), rule_(rule_of(values, density())) {}

  // estimate resolves the fold when it first reads the entries
  static constexpr bool kFolds = true;
  using Fit = kernels::StagedFit;
  static constexpr uint64_t kLearned = kernels::StagedRule::kLearned;

  float estimate(const sdk::Choice& from, std::span<float> learned, Fit& fit) const {
    kernels::SelectSegment& x = from.only();
    if (x.n == 0) return 0;
    fit.begin(rule_, x.n, band(x.n).target, from.unit(), learned.data());
    while (fit.looks()) fit.take(rule_, look(x, fit));
    return kernels::corrected(fit.threshold(), learned[kernels::StagedRule::kCorrection]);
  }
  void learn(std::span<float> learned, const Fit& fit, const sdk::Settled& settled) const {
    fit.learn(rule_, settled.threshold, learned.data());
  }

  sdk::device::SteeringLaw law() const {
    return {.kind = sdk::device::SteeringLaw::kStages, .in_stages = rule_};
  }

 private:
  static kernels::StagedRule rule_of(const sdk::Options& values, double density) {
    kernels::StagedRule rule{.law = law_named(values.choice("law")),
                             .stages = static_cast<uint32_t>(values.integer("stages")),
                             .density = density,
                             .first_ratio = values.real("first_ratio")};
    const double most = std::ceil(std::log2(1 / density));
    rule.most_stages = std::clamp<uint32_t>(static_cast<uint32_t>(most), 1, kMostStages);
    if (density >= rule.first_ratio) rule.stages = rule.most_stages = 1;
    return rule;
  }
  static kernels::TailLaw law_named(std::string_view name) {
    if (name == "exponential") return kernels::TailLaw::kExponential;
    if (name == "pareto") return kernels::TailLaw::kPareto;
    return name == "gaussian" ? kernels::TailLaw::kGaussian : kernels::TailLaw::kGammaPareto;
  }

  kernels::TailSample look(kernels::SelectSegment& x, const Fit& fit) const {
    if (fit.looks_at_all()) {
      const bool logs = rule_.wants_logs();
      return kernels::sample_of(sdk::first_statistics(x, path(), {.logs = logs}), logs);
    }
    const kernels::Fold* const fold = std::exchange(x.fold, nullptr);
    const kernels::Exceedances found = kernels::exceedances(x.x, x.n, fit.look(), path(), fold);
    return kernels::sample_of(sdk::found_finite(fold) ? found : kernels::Exceedances{});
  }

  kernels::StagedRule rule_;
};

}  // namespace

PENSTOCK_COMPRESSOR(Sidco, "compressor/sidco", "0.1.0",
                    "sends the entries above a threshold from a fitted law, in stages",
                    "Abdelmoniem et al., An Efficient Statistical-based Gradient Compression "
                    "Technique for Distributed Training Systems, MLSys 2021");
