// Max-min quantisation: the range of every block of elements is cut into 2^bits - 1 equal steps
// between its least and its greatest element, and each element is rounded to the level below or
// above it.
// Source: Markov, Ramezanikebrya, Alistarh, "CGX: Adaptive System Support for Communication-
// Efficient Deep Learning", Middleware 2022. See README.md for where this differs and why.
#include "levels.hpp"

#include <methods/dense.hpp>

namespace sdk = penstock::sdk;
namespace kernels = penstock::kernels;
namespace cuda = penstock::kernels::cuda;
namespace maxmin = penstock::maxmin;

namespace {

// A block's scales are its least level and the step.
class MaxMin : public sdk::QuantisingCompressor<MaxMin> {
 public:
  static inline const sdk::OptionList options{
      sdk::integer_option("bits", 4).at_least(1).at_most(8).unit("bits").summary(
          "size of the code that stands for an element"),
      sdk::integer_option("block", 512)
          .at_least(64)
          .at_most(1 << 20)
          .unit("elements")
          .summary("elements that share a range; a multiple of 64"),
      sdk::choice_option("rounding", "stochastic", {"stochastic", "nearest"})
          .summary("stochastic: right on average; nearest: smaller errors, wants a memory")};

  explicit MaxMin(const sdk::Options& values)
      : QuantisingCompressor(static_cast<unsigned>(values.integer("bits")),
                             sdk::multiple_of_64(values, "maxmin", "block"), "maxmin"),
        stochastic_(values.choice("rounding") == "stochastic") {}

  static constexpr uint64_t kScales = 2;

  void describe(penstock_compressor_traits& traits) const {
    traits.flags = stochastic_ ? PENSTOCK_COMPRESSOR_UNBIASED | PENSTOCK_COMPRESSOR_RANDOM
                               : PENSTOCK_COMPRESSOR_NEEDS_MEMORY;
    traits.device_types = sdk::device::kWhereKernelsAre;
  }

  void measure(std::span<const float> block, double, float* scales) const {
    const maxmin::Range range = maxmin::range_of(block.data(), block.size(), path());
    const maxmin::Levels levels = kernels::levels_of_range(range, n_steps());
    scales[0] = levels.low;
    scales[1] = levels.step;
  }
  void quantise(std::span<float> x, const float* scales, const sdk::Draws& of_tile, bool take_out,
                uint8_t* codes) const {
    const maxmin::Levels levels{scales[0], scales[1]};
    float draws[kTile];
    if (stochastic_)
      kernels::random_uniform(of_tile.key, of_tile.first, x.size(), draws, path());
    else
      std::fill_n(draws, x.size(), 0.5f);  // a draw of one half is rounding to nearest
    maxmin::round_to_levels(x.data(), x.size(), levels, n_steps(), draws, codes, path());
    if (take_out) maxmin::subtract_levels(codes, x.size(), levels, x.data(), path());
  }
  void add(const uint8_t* codes, const float* scales, std::span<float> out) const {
    maxmin::add_levels(codes, out.size(), {scales[0], scales[1]}, out.data(), path());
  }
  void check(const sdk::PayloadReader& payload, uint64_t block, const float* scales) const {
    if (!kernels::usable({scales[0], scales[1]}, n_steps()))
      throw payload.error("has in block ", block, " a least value of ", scales[0],
                          " and a step of ", scales[1],
                          ", expected finite values and no negative step");
  }

  int32_t quantise_on_device(const sdk::device::Quantising<float>& of, void* stream) const {
    const uint64_t n = of.work.size();
    auto* const ranges = of.found<kernels::ValueRange>();
    auto* const levels = reinterpret_cast<kernels::RangeLevels*>(of.scales);
    int32_t error = cuda::value_ranges(of.work.data(), n, of.block, ranges, of.workspace, stream);
    if (error != 0) return error;
    error = cuda::range_levels(ranges, of.n_blocks(), n_steps(), levels, stream);
    if (error != 0) return error;
    return cuda::round_to_range(of.work.data(), n, of.block, levels, n_steps(),
                                {stochastic_, of.key, of.first}, of.take_out, of.codes, stream);
  }
  int32_t sum_on_device(std::span<const cuda::CodeSender> senders, const cuda::CodedSum& sum,
                        void* stream) const {
    return cuda::sum_range_levels(senders, bits(), sum, stream);
  }

 private:
  uint32_t n_steps() const { return (1u << bits()) - 1; }

  bool stochastic_;
};

}  // namespace

PENSTOCK_COMPRESSOR(MaxMin, "compressor/maxmin", "0.1.0",
                    "1 to 8 bits per element between the least and greatest of its block",
                    "Markov, Ramezanikebrya, Alistarh, CGX: Adaptive System Support for "
                    "Communication-Efficient Deep Learning, Middleware 2022");
