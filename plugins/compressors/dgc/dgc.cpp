// Deep Gradient Compression, the selection: a threshold from a sample, corrected if it misses, and
// a second selection where too many pass. Momentum and clipping are in the memory of the same name.
// Source: Lin, Han, Mao, Wang, Dally, "Deep Gradient Compression", ICLR 2018.
#include <kernels/random_normal.hpp>
#include <kernels/select.hpp>
#include <methods/agreed.hpp>
#include <methods/density.hpp>
#include <methods/folded.hpp>
#include <methods/sparse_values.hpp>

#include <array>

#include "geometry.hpp"

namespace sdk = penstock::sdk;
namespace kernels = penstock::kernels;

namespace {

constexpr uint64_t kMostRounds = 32;
constexpr uint64_t kGolden = 0x9E3779B97F4A7C15u;

class Dgc : public sdk::FoldingEncoder<Dgc> {
 public:
  static inline const sdk::OptionList options{
      sdk::density_option(0.001, "share of the entries that is sent"),
      sdk::real_option("sample_ratio", 0.01)
          .at_least(0.01)
          .at_most(1)
          .unit("fraction")
          .summary("share of the entries that is sampled for the threshold; 1 selects exactly"),
      sdk::real_option("upper", 1.3)
          .at_least(1)
          .at_most(16)
          .summary("with resample = false, the threshold rises while more than this times k "
                   "entries pass"),
      sdk::real_option("lower", 0.8)
          .above(0)
          .at_most(1)
          .summary("the threshold falls while less than this times k entries pass"),
      sdk::integer_option("max_rounds", 10)
          .at_least(0)
          .at_most(kMostRounds)
          .summary("most corrections of the threshold in one step"),
      sdk::bool_option("resample", true)
          .summary("where more than k entries pass, send the k largest of them; otherwise correct "
                   "the threshold and send up to upper times k"),
      sdk::SparseValues::option()};

  explicit Dgc(const sdk::Options& values)
      : density_(values.real("density")),
        sample_ratio_(values.real("sample_ratio")),
        upper_(values.real("upper")),
        lower_(values.real("lower")),
        max_rounds_(static_cast<uint64_t>(values.integer("max_rounds"))),
        resample_(values.boolean("resample")),
        values_(values),
        path_(penstock::sdk::agreed_code_path("select")) {}

  void describe(penstock_compressor_traits& traits) const {
    traits.flags = PENSTOCK_COMPRESSOR_NEEDS_MEMORY;
    traits.folds = sdk::kAllFolds;
  }

  void plan(const sdk::PlanCall&, const sdk::Item& item, sdk::CompressorNeed& need) {
    const uint64_t n = item.numel();
    sdk::check_indexable(item, "dgc");
    const uint64_t capacity = capacity_of(n);
    // How many entries pass differs from rank to rank, so counts travel.
    values_.plan(need, capacity, false);
    need.scratch_bytes = sample_bytes(dgc::geometry_of(n, density_, sample_ratio_)) +
                         kernels::select_scratch_bytes(n, capacity);
  }

  void encode_item(const sdk::Call& call, const sdk::Item& item, sdk::PayloadWriter& payload,
                   const kernels::Fold* fold) const {
    Target target{item.work().data(), item.numel(), payload.room<uint32_t>(0).data(), nullptr};
    target.fold = fold;
    select(call, item, target);
    values_.write(item, payload, target.count);
  }

  void decode_add(const sdk::Call&, const sdk::Item& item, const sdk::PayloadReader& payload) {
    values_.add(payload, item.out());
  }

 private:
  using Target = kernels::SelectSegment;

  uint64_t capacity_of(uint64_t n) const {
    const uint64_t k = sdk::kept_count(n, density_);
    if (resample_) return k;
    return std::min(n, static_cast<uint64_t>(std::ceil(upper_ * static_cast<double>(k) - 1e-9)));
  }

  // The sample and its keys.
  static uint64_t sample_bytes(const dgc::Geometry& geometry) {
    if (geometry.exact) return 0;
    return (geometry.most_samples() * sizeof(uint32_t) + 63) / 64 * 64 * 2;
  }

  // Counter hash of (seed, step, gradient): the same on every rank and in every run, another in
  // every step, so that over time each entry is sampled.
  static uint64_t sampling_start(const penstock_step& step, uint64_t gradient, uint64_t stride) {
    const uint64_t stream = kernels::splitmix64(gradient * kGolden + kernels::kStreamSampling);
    return kernels::splitmix64(kernels::splitmix64(step.seed ^ stream) + step.index * kGolden) %
           stride;
  }

  // Compensates where the target has a fold, chooses entries, and writes them to the target.
  void select(const sdk::Call& call, const sdk::Item& item, Target& target) const {
    const dgc::Geometry geometry = dgc::geometry_of(target.n, density_, sample_ratio_);
    const uint64_t offset = sample_bytes(geometry);
    const kernels::SelectScratch scratch{static_cast<char*>(call.exec->scratch) + offset,
                                         call.exec->scratch_bytes - offset};
    if (geometry.exact) return select_exactly(geometry.kept, target, scratch);
    const float threshold = sampled_threshold(call, item, geometry, target, scratch);
    if (resample_)
      select_hierarchically(geometry.kept, threshold, target, scratch);
    else
      select_by_threshold(geometry.kept, threshold, target, scratch);
  }

  static float sampled_threshold(const sdk::Call& call, const sdk::Item& item,
                                 const dgc::Geometry& geometry, const Target& target,
                                 kernels::SelectScratch scratch) {
    const uint64_t stride = geometry.stride;
    const uint64_t start = sampling_start(*call.step, item.c().gradient, stride);
    const uint64_t samples = (target.n - start + stride - 1) / stride;
    const auto sample = call.scratch<float>(samples);
    const auto keys = call.scratch<uint32_t>(samples, sample_bytes(geometry) / 2);
    for (uint64_t j = 0; j < samples; ++j) {
      const uint64_t i = start + j * stride;
      sample[j] = target.fold == nullptr ? target.x[i] : kernels::compensated(*target.fold, i);
    }
    return kernels::kth_magnitude(sample.data(), samples, 1,
                                  std::min(geometry.sampled_kept, samples), keys.data(), scratch);
  }

  void select_exactly(uint64_t k, Target& target, kernels::SelectScratch scratch) const {
    kernels::select_largest({&target, 1}, k, scratch, path_);
  }

  // All that reach the threshold or, of more than `most`, the largest. A threshold of zero is
  // reached by every entry, zeros included.
  void choose_above(float threshold, uint64_t most, Target& target,
                    kernels::SelectScratch scratch) const {
    if (threshold == 0) return select_exactly(most, target, scratch);
    kernels::select_above(target, threshold, most, scratch, path_);
  }

  // At most k. Where too few pass, one counting pass serves all thresholds that may follow.
  void select_hierarchically(uint64_t k, float threshold, Target& target,
                             kernels::SelectScratch scratch) const {
    choose_above(threshold, k, target, scratch);
    const double enough = lower_ * static_cast<double>(k);
    if (static_cast<double>(target.count) >= enough || max_rounds_ == 0) return;
    std::array<float, kMostRounds> thresholds;
    std::array<uint64_t, kMostRounds> counts;
    for (uint64_t j = 0; j < max_rounds_; ++j)
      thresholds[j] = threshold = threshold * static_cast<float>(lower_);
    kernels::count_above(target.x, target.n, {thresholds.data(), max_rounds_}, counts.data(),
                         path_);
    uint64_t chosen = 0;
    while (chosen + 1 < max_rounds_ && static_cast<double>(counts[chosen]) < enough) ++chosen;
    choose_above(thresholds[chosen], k, target, scratch);
  }

  // Up to upper * k; should the corrections run out, the largest of those that pass.
  void select_by_threshold(uint64_t k, float threshold, Target& target,
                           kernels::SelectScratch scratch) const {
    const double wanted = static_cast<double>(k);
    if (target.fold != nullptr) kernels::compensate(*target.fold, target.n, path_);
    target.fold = nullptr;
    for (uint64_t j = 0; j < max_rounds_; ++j) {
      uint64_t count = 0;
      kernels::count_above(target.x, target.n, {&threshold, 1}, &count, path_);
      if (static_cast<double>(count) > upper_ * wanted)
        threshold *= static_cast<float>(upper_);
      else if (static_cast<double>(count) < lower_ * wanted)
        threshold *= static_cast<float>(lower_);
      else
        break;
    }
    choose_above(threshold, capacity_of(target.n), target, scratch);
  }

  double density_;
  double sample_ratio_;
  double upper_;
  double lower_;
  uint64_t max_rounds_;
  bool resample_;
  sdk::SparseValues values_;
  kernels::CodePath path_;
};

}  // namespace

PENSTOCK_COMPRESSOR(Dgc, "compressor/dgc", "0.1.0",
                    "sends the entries above a sampled threshold, at most the wanted share",
                    "Lin et al., Deep Gradient Compression, ICLR 2018");
