// The selection of Deep Gradient Compression: a threshold from a sample, which is corrected if it
// misses, and a second selection if too many entries pass. Momentum and clipping are in the memory
// plugin `dgc`.
// Source: Lin, Han, Mao, Wang, Dally, "Deep Gradient Compression", ICLR 2018.
#include <kernels/cuda/correcting.hpp>
#include <kernels/cuda/falling.hpp>
#include <kernels/random_normal.hpp>
#include <methods/sparse.hpp>

#include <array>

#include "geometry.hpp"

namespace sdk = penstock::sdk;
namespace kernels = penstock::kernels;

namespace {

constexpr uint64_t kMostRounds = 32;
static_assert(kMostRounds <= kernels::cuda::kMostFalls);
constexpr uint64_t kGolden = 0x9E3779B97F4A7C15u;

class Dgc : public sdk::SparseCompressor<Dgc> {
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
          .summary("if more than k entries pass, send the k largest; otherwise correct the "
                   "threshold and send up to upper times k"),
      value_type_option()};

  explicit Dgc(const sdk::Options& values)
      : SparseCompressor(values, "dgc"),
        density_(values.real("density")),
        sample_ratio_(values.real("sample_ratio")),
        upper_(values.real("upper")),
        lower_(values.real("lower")),
        max_rounds_(static_cast<uint64_t>(values.integer("max_rounds"))),
        resample_(values.boolean("resample")) {}

  static constexpr bool kFolds = true;  // a sample is compensated on its own
  static constexpr bool kInspects = true;

  void plan(const sdk::PlanCall& call, const sdk::Item& item, sdk::CompressorNeed& need) {
    SparseCompressor::plan(call, item, need);
    const dgc::Geometry geometry = geometry_of(item.numel());
    need.scratch_bytes += sample_bytes(geometry);
    if constexpr (sdk::device::kHasKernels)
      if (works_on_devices() && !geometry.exact)
        for (const uint64_t samples : {geometry.most_samples() - 1, geometry.most_samples()})
          need.scratch_bytes = std::max(need.scratch_bytes, sdk::device::Choice::scratch_bytes(
                                                                samples, geometry.sampled_kept));
  }

  uint64_t most(uint64_t n) const {
    const uint64_t k = sdk::kept_count(n, density_);
    if (resample_) return k;
    return std::min(n, static_cast<uint64_t>(std::ceil(upper_ * static_cast<double>(k) - 1e-9)));
  }

  void choose(const sdk::Choice& all) const {
    const dgc::Geometry geometry = geometry_of(all.only().n);
    if (geometry.exact) return all.largest(geometry.kept);
    sdk::Choice from = all;
    from.scratch = sdk::select_scratch(all.call, sample_bytes(geometry));
    const float threshold = sampled_threshold(from, geometry);
    if (resample_)
      select_hierarchically(geometry.kept, threshold, from);
    else
      select_by_threshold(geometry.kept, threshold, from);
  }

  // This selection on a device: thresholds that may follow the sampled threshold are counted
  // together.
  void choose(const sdk::device::Choice& all) const {
    const dgc::Geometry geometry = geometry_of(all.n());
    if (geometry.exact) return all.largest(geometry.kept);
    if (resample_)
      select_hierarchically(geometry, all.compensated());
    else
      select_by_threshold(geometry, all.compensated());
  }

 private:
  // Every stride-th entry from `start` on.
  struct Sample {
    uint64_t start;
    uint64_t count;
    uint64_t kept;  // the threshold is the sample with this rank by magnitude
  };

  dgc::Geometry geometry_of(uint64_t n) const {
    return dgc::geometry_of(n, density_, sample_ratio_);
  }

  // The bytes of the sample and its keys.
  static uint64_t sample_bytes(const dgc::Geometry& geometry) {
    if (geometry.exact) return 0;
    return 2 * sdk::whole_lines(geometry.most_samples() * sizeof(uint32_t));
  }

  // The start of the sample: a counter hash of (seed, step, gradient). It is equal on every rank
  // and in every run, and changes with the step, so that over time each entry is sampled.
  static uint64_t sampling_start(const penstock_step& step, uint64_t gradient, uint64_t stride) {
    const uint64_t stream = kernels::splitmix64(gradient * kGolden + kernels::kStreamSampling);
    return kernels::splitmix64(kernels::splitmix64(step.seed ^ stream) + step.index * kGolden) %
           stride;
  }

  static Sample sample_of(const sdk::Call& call, const sdk::Item& item,
                          const dgc::Geometry& geometry) {
    const uint64_t stride = geometry.stride;
    const uint64_t start = sampling_start(*call.step, item.c().gradient, stride);
    const uint64_t count = (item.numel() - start + stride - 1) / stride;
    return {start, count, std::min(geometry.sampled_kept, count)};
  }

  static float sampled_threshold(const sdk::Choice& from, const dgc::Geometry& geometry) {
    const kernels::SelectSegment& target = from.only();
    const Sample drawn = sample_of(from.call, from.item, geometry);
    const auto sample = from.call.scratch<float>(drawn.count);
    const auto keys = from.call.scratch<uint32_t>(drawn.count, sample_bytes(geometry) / 2);
    for (uint64_t j = 0; j < drawn.count; ++j) {
      target.fetch(drawn.start + (j + kernels::kFetchedEarly) * geometry.stride);
      sample[j] = target.at(drawn.start + j * geometry.stride);
    }
    return kernels::kth_magnitude(sample.data(), drawn.count, 1, drawn.kept, keys.data(),
                                  from.scratch);
  }

  // The threshold of the sample, computed on a device and written to its memory.
  static void find_sampled_threshold(const dgc::Geometry& geometry, const sdk::device::Choice& from,
                                     float* threshold) {
    const Sample sample = sample_of(from.call, from.item, geometry);
    from.queue([&](void* stream) {
      return kernels::cuda::kth_magnitude(from.work() + sample.start, sample.count, geometry.stride,
                                          sample.kept, threshold, from.workspace(), stream);
    });
  }

  // Selects all entries that reach the threshold or, if these are more than `most`, the largest
  // entries. Every entry reaches a threshold of zero, even a zero.
  static void choose_above(float threshold, uint64_t most, const sdk::Choice& from) {
    if (threshold == 0) return from.largest(most);
    from.above(threshold, most);
  }

  // Selects at most k entries. If too few pass, one counting pass serves all thresholds that may
  // follow.
  void select_hierarchically(uint64_t k, float threshold, const sdk::Choice& from) const {
    choose_above(threshold, k, from);
    const kernels::SelectSegment& target = from.only();
    const double enough = lower_ * static_cast<double>(k);
    if (static_cast<double>(target.count) >= enough || max_rounds_ == 0) return;
    std::array<float, kMostRounds> thresholds;
    std::array<uint64_t, kMostRounds> counts;
    for (uint64_t j = 0; j < max_rounds_; ++j)
      thresholds[j] = threshold = threshold * static_cast<float>(lower_);
    kernels::count_above(target.x, target.n, {thresholds.data(), max_rounds_}, counts.data(),
                         path());
    uint64_t chosen = 0;
    while (chosen + 1 < max_rounds_ && static_cast<double>(counts[chosen]) < enough) ++chosen;
    choose_above(thresholds[chosen], k, from);
  }

  void select_hierarchically(const dgc::Geometry& geometry, const sdk::device::Choice& from) const {
    auto* const falling = from.own<kernels::cuda::Falling>();
    find_sampled_threshold(geometry, from, falling->thresholds);
    from.queue([&](void* stream) {
      return kernels::cuda::fall(from.work(), from.n(), static_cast<float>(lower_),
                                 static_cast<uint32_t>(max_rounds_),
                                 lower_ * static_cast<double>(geometry.kept), falling, stream);
    });
    from.above(&falling->found, geometry.kept, kernels::cuda::Zeros::kReachZero);
  }

  // Selects up to upper * k entries; if all corrections fail, the largest entries that pass.
  void select_by_threshold(uint64_t k, float threshold, const sdk::Choice& from) const {
    const double wanted = static_cast<double>(k);
    kernels::SelectSegment& target = from.only();
    if (target.fold != nullptr) kernels::compensate(*target.fold, target.n, path());
    target.fold = nullptr;
    for (uint64_t j = 0; j < max_rounds_; ++j) {
      uint64_t count = 0;
      kernels::count_above(target.x, target.n, {&threshold, 1}, &count, path());
      if (static_cast<double>(count) > upper_ * wanted)
        threshold *= static_cast<float>(upper_);
      else if (static_cast<double>(count) < lower_ * wanted)
        threshold *= static_cast<float>(lower_);
      else
        break;
    }
    choose_above(threshold, from.most, from);
  }

  void select_by_threshold(const dgc::Geometry& geometry, const sdk::device::Choice& from) const {
    auto* const correcting = from.own<kernels::cuda::Correcting>();
    find_sampled_threshold(geometry, from, &correcting->threshold);
    const double wanted = static_cast<double>(geometry.kept);
    from.queue([&](void* stream) {
      return kernels::cuda::correct(
          from.work(), from.n(),
          {static_cast<float>(upper_), static_cast<float>(lower_), upper_ * wanted, lower_ * wanted,
           static_cast<uint32_t>(max_rounds_)},
          correcting, stream);
    });
    from.above(&correcting->threshold, from.most, kernels::cuda::Zeros::kReachZero);
  }

  double density_;
  double sample_ratio_;
  double upper_;
  double lower_;
  uint64_t max_rounds_;
  bool resample_;
};

}  // namespace

PENSTOCK_COMPRESSOR(Dgc, "compressor/dgc", "0.1.0",
                    "sends the entries above a sampled threshold, at most the wanted share",
                    "Lin et al., Deep Gradient Compression, ICLR 2018");
