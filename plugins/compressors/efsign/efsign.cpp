// EF-sign: each rank sends the signs of its gradient and one scale, the mean magnitude; a memory
// keeps the rest.
// Source: Karimireddy, Rebjock, Stich, Jaggi, "Error Feedback Fixes SignSGD and other Gradient
// Compression Schemes", ICML 2019, algorithm 1. See README.md for where this differs and why.
#include <kernels/norm.hpp>
#include <methods/sign.hpp>

namespace sdk = penstock::sdk;
namespace kernels = penstock::kernels;

namespace {

// Each item has one scale, so a part of a gradient would get its own scale.
class EfSign : public sdk::SignCompressor<EfSign> {
 public:
  static inline const sdk::OptionList options{};
  explicit EfSign(const sdk::Options&) {}

  static constexpr bool kMirrored = true;
  static constexpr bool kOnDevices = true;

  // C(p) = |p|_1 / n * sign(p)
  sdk::SignNumbers numbers(std::span<const float> p) const {
    const double sum = kernels::sum_of_magnitudes(p.data(), p.size(), path());
    const auto elements = static_cast<double>(std::max<uint64_t>(1, p.size()));
    const auto scale = static_cast<float>(sum / elements);
    return {scale, -scale};
  }
  void write_numbers(const sdk::Call& call, const sdk::Item& item, uint64_t, float* scale) const {
    sdk::device::write_mean_magnitude(call, item, scale);
  }
};

}  // namespace

PENSTOCK_COMPRESSOR(EfSign, "compressor/efsign", "0.1.0",
                    "signs and their mean magnitude, with error feedback",
                    "Karimireddy et al., Error Feedback Fixes SignSGD and other Gradient "
                    "Compression Schemes, ICML 2019");
