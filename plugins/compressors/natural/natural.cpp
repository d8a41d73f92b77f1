// Natural compression: each element is rounded at random to the power of two below or above it, so
// that only a sign and an exponent, 8 bits, are sent.
// Source: Horvath, Ho, Horvath, Sahu, Canini, Richtarik, "Natural Compression for Distributed Deep
// Learning", MSML 2022 (arXiv 1905.10988). See README.md for where this differs and why.
#include <kernels/stochastic.hpp>
#include <methods/dense.hpp>

namespace sdk = penstock::sdk;
namespace kernels = penstock::kernels;
namespace cuda = penstock::kernels::cuda;

namespace {

// A block's scale is the base of its exponents.
class Natural : public sdk::QuantisingCompressor<Natural, uint8_t, uint8_t> {
 public:
  static inline const sdk::OptionList options{};
  explicit Natural(const sdk::Options&) : QuantisingCompressor(8, 1024, "stochastic") {}

  static constexpr uint32_t kSplit = PENSTOCK_SPLIT_BY_ELEMENT;

  void describe(penstock_compressor_traits& traits) const {
    traits.flags = PENSTOCK_COMPRESSOR_UNBIASED | PENSTOCK_COMPRESSOR_RANDOM;
    traits.device_types = sdk::device::kWhereKernelsAre;
  }

  void measure(std::span<const float> block, double, uint8_t* base) const {
    *base = static_cast<uint8_t>(
        kernels::power_base(kernels::largest_magnitude(block.data(), block.size(), path())));
  }
  void quantise(std::span<float> x, const uint8_t* base, const sdk::Draws& draws, bool take_out,
                uint8_t* codes) const {
    kernels::round_to_powers(x.data(), x.size(), *base, draws.key, draws.first, take_out, codes,
                             path());
  }
  void add(const uint8_t* codes, const uint8_t* base, std::span<float> out) const {
    kernels::add_powers(codes, out.size(), *base, false, out.data(), path());
  }
  void check(const sdk::PayloadReader& payload, uint64_t block, const uint8_t* base) const {
    if (*base > kernels::kPowerCodes)
      throw payload.error("has base ", uint32_t{*base}, " in bucket ", block, ", expected at most ",
                          kernels::kPowerCodes);
  }

  int32_t quantise_on_device(const sdk::device::Quantising<uint8_t>& of, void* stream) const {
    const uint64_t n = of.work.size();
    auto* const largest = of.found<float>();
    int32_t error =
        cuda::largest_magnitude(of.work.data(), n, of.block, largest, of.workspace, stream);
    if (error != 0) return error;
    error = cuda::power_bases(largest, of.n_blocks(), of.scales, stream);
    if (error != 0) return error;
    return cuda::round_to_powers(of.work.data(), n, of.block, of.scales, of.key, of.first,
                                 of.take_out, of.codes, stream);
  }
  int32_t sum_on_device(std::span<const cuda::CodeSender> senders, const cuda::CodedSum& sum,
                        void* stream) const {
    return cuda::sum_powers(senders, sum, stream);
  }
};

}  // namespace

PENSTOCK_COMPRESSOR(Natural, "compressor/natural", "0.1.0",
                    "stochastic rounding to powers of two, 8 bits",
                    "Horvath et al., Natural Compression for Distributed Deep Learning, "
                    "MSML 2022");
