// QSGD: each bucket of elements is rounded at random to a grid of equal steps between minus and
// plus its norm, and sent with 2 to 8 bits per element.
// Source: Alistarh, Grubic, Li, Tomioka, Vojnovic, "QSGD: Communication-Efficient SGD via Gradient
// Quantization and Encoding", NeurIPS 2017. See README.md for where this differs and why.
#include <kernels/norm.hpp>
#include <kernels/stochastic.hpp>
#include <methods/dense.hpp>

#include <cmath>
#include <cstring>

namespace sdk = penstock::sdk;
namespace kernels = penstock::kernels;
namespace cuda = penstock::kernels::cuda;

namespace {

// A bucket's scale is the step of its grid.
class Qsgd : public sdk::QuantisingCompressor<Qsgd> {
 public:
  static inline const sdk::OptionList options{
      sdk::integer_option("bits", 4).at_least(2).at_most(8).unit("bits").summary(
          "bits per element: a sign and 2^(bits - 1) - 1 steps"),
      sdk::integer_option("bucket", 512)
          .at_least(0)
          .at_most(1 << 30)
          .unit("elements")
          .summary("elements that share a norm, a multiple of 64; 0: the whole gradient"),
      sdk::choice_option("norm", "l2", {"l2", "max"})
          .summary("range of the grid: the Euclidean norm of a bucket or its largest magnitude")};

  explicit Qsgd(const sdk::Options& values)
      : QuantisingCompressor(static_cast<unsigned>(values.integer("bits")),
                             sdk::multiple_of_64(values, "qsgd", "bucket"), "stochastic"),
        euclidean_(values.choice("norm") == "l2") {}

  static constexpr bool kChecksCodes = true;

  void describe(penstock_compressor_traits& traits) const {
    traits.flags = PENSTOCK_COMPRESSOR_UNBIASED | PENSTOCK_COMPRESSOR_RANDOM;
    traits.device_types = sdk::device::kWhereKernelsAre;
  }

  void measure(std::span<const float> bucket, double, float* step) const {
    const double reach =
        euclidean_ ? std::sqrt(kernels::sum_of_squares(bucket.data(), bucket.size(), path()))
                   : double{kernels::largest_magnitude(bucket.data(), bucket.size(), path())};
    *step = kernels::grid_step(reach, levels());
  }
  void quantise(std::span<float> x, const float* step, const sdk::Draws& draws, bool take_out,
                uint8_t* codes) const {
    kernels::round_to_levels(x.data(), x.size(), {*step, levels()}, draws.key, draws.first,
                             take_out, codes, path());
  }
  void add(const uint8_t* codes, const float* step, std::span<float> out) const {
    kernels::add_levels(codes, out.size(), *step, false, out.data(), path());
  }

  void check(const sdk::PayloadReader& payload, uint64_t bucket, const float* step) const {
    if (!(*step >= 0) || !std::isfinite(*step * static_cast<float>(levels())))
      throw payload.error("has a step of ", *step, " in bucket ", bucket,
                          ", expected a step of at least 0 with which every level is finite");
  }
  // Levels are in two's complement with the number of bits of a code. The lowest of these numbers
  // has no counterpart of the other sign and is never sent.
  void check_codes(const sdk::PayloadReader& payload, uint64_t at, std::span<uint8_t> codes) const {
    const auto half = static_cast<uint8_t>(1u << (bits() - 1));
    if (const void* wrong = std::memchr(codes.data(), half, codes.size()); wrong != nullptr)
      throw payload.error(
          "has level -", uint32_t{half}, " at element ",
          at + static_cast<uint64_t>(static_cast<const uint8_t*>(wrong) - codes.data()),
          ", expected at most ", levels(), " in magnitude");
    for (uint8_t& code : codes) code = static_cast<uint8_t>((code ^ half) - half);
  }

  // A norm's squares are summed in the device's order, so a step may be the next float.
  int32_t quantise_on_device(const sdk::device::Quantising<float>& of, void* stream) const {
    if (const int32_t error = measure_on_device(of, stream); error != 0) return error;
    return cuda::round_to_levels(of.work.data(), of.work.size(), of.block, of.scales, levels(),
                                 of.key, of.first, of.take_out, of.codes, stream);
  }
  int32_t sum_on_device(std::span<const cuda::CodeSender> senders, const cuda::CodedSum& sum,
                        void* stream) const {
    return cuda::sum_levels(senders, bits(), sum, stream);
  }

 private:
  uint32_t levels() const { return (1u << (bits() - 1)) - 1; }

  int32_t measure_on_device(const sdk::device::Quantising<float>& of, void* stream) const {
    if (euclidean_) {
      auto* const moments = of.found<kernels::Moments>();
      const int32_t error =
          cuda::moments(of.work.data(), of.work.size(), of.block, moments, of.workspace, stream);
      if (error != 0) return error;
      return cuda::grid_steps_of_norm(moments, of.n_blocks(), levels(), of.scales, stream);
    }
    auto* const largest = of.found<float>();
    const int32_t error = cuda::largest_magnitude(of.work.data(), of.work.size(), of.block, largest,
                                                  of.workspace, stream);
    if (error != 0) return error;
    return cuda::grid_steps_of_largest(largest, of.n_blocks(), levels(), of.scales, stream);
  }

  bool euclidean_;
};

}  // namespace

PENSTOCK_COMPRESSOR(Qsgd, "compressor/qsgd", "0.1.0",
                    "stochastic rounding to equal steps of each bucket's norm, 2 to 8 bits",
                    "Alistarh et al., QSGD: Communication-Efficient SGD via Gradient Quantization "
                    "and Encoding, NeurIPS 2017");
