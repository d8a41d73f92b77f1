// Deep Gradient Compression, the selection: a threshold from a sample, corrected if it misses, and
// a second selection where too many pass. Momentum and clipping are in the memory of the same name.
// Source: Lin, Han, Mao, Wang, Dally, "Deep Gradient Compression", ICLR 2018.
#include <kernels/payload.hpp>
#include <kernels/random_normal.hpp>
#include <kernels/select.hpp>
#include <penstock/compressor.hpp>

#include <array>

#include "geometry.hpp"

namespace sdk = penstock::sdk;
namespace kernels = penstock::kernels;

namespace {

constexpr uint64_t kMostRounds = 32;
constexpr uint64_t kMostEntries = uint64_t{1} << 32;
constexpr uint64_t kGolden = 0x9E3779B97F4A7C15u;
constexpr uint64_t kStreamSampling = 3;  // streams 1 and 2 are the factors of low-rank methods

class Dgc {
 public:
  static inline const sdk::OptionList options{
      sdk::real_option("density", 0.001)
          .above(0)
          .at_most(1)
          .unit("fraction")
          .summary("share of the entries that is sent"),
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
                   "the threshold and send up to upper times k")};

  explicit Dgc(const sdk::Options& values)
      : density_(values.real("density")),
        sample_ratio_(values.real("sample_ratio")),
        upper_(values.real("upper")),
        lower_(values.real("lower")),
        max_rounds_(static_cast<uint64_t>(values.integer("max_rounds"))),
        resample_(values.boolean("resample")),
        path_(kernels::select_code_path(sdk::code_path("select"))) {}

  void describe(penstock_compressor_traits& traits) const {
    traits.flags = PENSTOCK_COMPRESSOR_NEEDS_MEMORY;
  }

  void plan(const sdk::PlanCall&, const sdk::Item& item, sdk::CompressorNeed& need) {
    const uint64_t n = item.numel();
    if (n >= kMostEntries)
      throw sdk::invalid_argument("gradient '", item.name(), "' has ", n,
                                  " entries; dgc numbers them with 32 bits, expected fewer than ",
                                  kMostEntries,
                                  "; add a rule that sends it with another compressor");
    const uint64_t capacity = capacity_of(n);
    // How many entries pass differs from rank to rank, so counts travel.
    need.round(PENSTOCK_COMBINE_GATHER)
        .section(PENSTOCK_ROLE_INDICES, PENSTOCK_UINT32, capacity, false, PENSTOCK_SPLIT_BY_INDEX)
        .section(PENSTOCK_ROLE_VALUES, PENSTOCK_FLOAT32, capacity, false, PENSTOCK_SPLIT_BY_INDEX);
    need.scratch_bytes = sample_bytes(dgc::geometry_of(n, density_, sample_ratio_)) +
                         kernels::select_scratch_bytes(n, capacity);
  }

  void encode(const sdk::Call& call, const sdk::Item& item, sdk::PayloadWriter& payload) {
    const std::span<float> work = item.work();
    const Target target{work, payload.room<uint32_t>(0).data(), payload.room<float>(1).data()};
    const uint64_t count = select(call, item, target);
    payload.sparse(count);
    if (item.keeps())
      for (uint64_t j = 0; j < count; ++j) work[target.indices[j]] = 0;
  }

  void decode_add(const sdk::Call&, const sdk::Item& item, const sdk::PayloadReader& payload) {
    if (payload.kind() != PENSTOCK_PAYLOAD_SPARSE)
      throw payload.error("is of kind ", payload.kind(), ", expected sparse");
    sdk::add_payload(payload, item.out());
  }

 private:
  struct Target {
    std::span<const float> work;
    uint32_t* indices;
    float* values;
  };

  uint64_t capacity_of(uint64_t n) const {
    const uint64_t k = dgc::kept_count(n, density_);
    if (resample_) return k;
    return std::min(n, static_cast<uint64_t>(std::ceil(upper_ * static_cast<double>(k) - 1e-9)));
  }

  static uint64_t sample_bytes(const dgc::Geometry& geometry) {
    if (geometry.exact) return 0;
    return (geometry.most_samples() * sizeof(uint32_t) + 63) / 64 * 64;
  }

  // Counter hash of (seed, step, gradient): the same on every rank and in every run, another in
  // every step, so that over time each entry is sampled.
  static uint64_t sampling_start(const penstock_step& step, uint64_t gradient, uint64_t stride) {
    const uint64_t stream = kernels::splitmix64(gradient * kGolden + kStreamSampling);
    return kernels::splitmix64(kernels::splitmix64(step.seed ^ stream) + step.index * kGolden) %
           stride;
  }

  // Chooses entries of target.work, writes them, returns their number.
  uint64_t select(const sdk::Call& call, const sdk::Item& item, const Target& target) const {
    const uint64_t n = target.work.size();
    const dgc::Geometry geometry = dgc::geometry_of(n, density_, sample_ratio_);
    const uint64_t offset = sample_bytes(geometry);
    const kernels::SelectScratch scratch{static_cast<char*>(call.exec->scratch) + offset,
                                         call.exec->scratch_bytes - offset};
    if (geometry.exact) return select_exactly(geometry.kept, target, scratch);

    const uint64_t start = sampling_start(*call.step, item.c().gradient, geometry.stride);
    const uint64_t samples = (n - start + geometry.stride - 1) / geometry.stride;
    uint32_t* keys = call.scratch<uint32_t>(samples).data();
    const float threshold =
        kernels::kth_magnitude(target.work.data() + start, samples, geometry.stride,
                               std::min(geometry.sampled_kept, samples), keys, scratch);
    return resample_ ? select_hierarchically(geometry.kept, threshold, target, scratch)
                     : select_by_threshold(geometry.kept, threshold, target, scratch);
  }

  uint64_t select_exactly(uint64_t k, const Target& target, kernels::SelectScratch scratch) const {
    kernels::select_largest(target.work.data(), target.work.size(), k, target.indices,
                            target.values, scratch, path_);
    return k;
  }

  // All that reach the threshold or, of more than `most`, the largest. A threshold of zero is
  // reached by every entry, zeros included.
  uint64_t take_above(float threshold, uint64_t most, const Target& target,
                      kernels::SelectScratch scratch) const {
    if (threshold == 0) return select_exactly(most, target, scratch);
    return kernels::select_above(target.work.data(), target.work.size(), threshold, most,
                                 target.indices, target.values, scratch, path_);
  }

  // At most k. Where too few pass, one counting pass serves all thresholds that may follow.
  uint64_t select_hierarchically(uint64_t k, float threshold, const Target& target,
                                 kernels::SelectScratch scratch) const {
    const uint64_t first = take_above(threshold, k, target, scratch);
    const double enough = lower_ * static_cast<double>(k);
    if (static_cast<double>(first) >= enough || max_rounds_ == 0) return first;
    std::array<float, kMostRounds> thresholds;
    std::array<uint64_t, kMostRounds> counts;
    for (uint64_t j = 0; j < max_rounds_; ++j)
      thresholds[j] = threshold = threshold * static_cast<float>(lower_);
    kernels::count_above(target.work.data(), target.work.size(), {thresholds.data(), max_rounds_},
                         counts.data());
    uint64_t chosen = 0;
    while (chosen + 1 < max_rounds_ && static_cast<double>(counts[chosen]) < enough) ++chosen;
    return take_above(thresholds[chosen], k, target, scratch);
  }

  // Up to upper * k; should the corrections run out, the largest of those that pass.
  uint64_t select_by_threshold(uint64_t k, float threshold, const Target& target,
                               kernels::SelectScratch scratch) const {
    const double wanted = static_cast<double>(k);
    for (uint64_t j = 0; j < max_rounds_; ++j) {
      uint64_t count = 0;
      kernels::count_above(target.work.data(), target.work.size(), {&threshold, 1}, &count);
      if (static_cast<double>(count) > upper_ * wanted)
        threshold *= static_cast<float>(upper_);
      else if (static_cast<double>(count) < lower_ * wanted)
        threshold *= static_cast<float>(lower_);
      else
        break;
    }
    return take_above(threshold, capacity_of(target.work.size()), target, scratch);
  }

  double density_;
  double sample_ratio_;
  double upper_;
  double lower_;
  uint64_t max_rounds_;
  bool resample_;
  kernels::CodePath path_;
};

}  // namespace

PENSTOCK_COMPRESSOR(Dgc, "compressor/dgc", "0.1.0",
                    "sends the entries above a sampled threshold, at most the wanted share",
                    "Lin et al., Deep Gradient Compression, ICLR 2018");
