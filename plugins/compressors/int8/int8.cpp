// Eight-bit floats of a fixed codebook: each element is rounded to the nearest of 256 multiples of
// the largest magnitude of its block.
// Source: Dettmers, "8-Bit Approximations for Parallelism in Deep Learning", ICLR 2016. See
// README.md for where this differs and why.
#include "codebook.hpp"

#include <kernels/stochastic.hpp>
#include <methods/dense.hpp>

namespace sdk = penstock::sdk;
namespace kernels = penstock::kernels;
namespace cuda = penstock::kernels::cuda;
namespace int8 = penstock::int8;

namespace {

class Int8 : public sdk::QuantisingCompressor<Int8, uint8_t> {
 public:
  static inline const sdk::OptionList options{
      sdk::integer_option("block", 2048)
          .at_least(0)
          .at_most(1 << 20)
          .unit("elements")
          .summary("elements that share a scale; 0: the whole gradient")};

  explicit Int8(const sdk::Options& values)
      : QuantisingCompressor(8, static_cast<uint64_t>(values.integer("block")), "int8") {}

  void measure(std::span<const float> block, double, float* scale) const {
    *scale = kernels::largest_magnitude(block.data(), block.size(), path());
  }
  void quantise(std::span<float> x, const float* scale, const sdk::Draws&, bool take_out,
                uint8_t* codes) const {
    const float divisor = *scale > 0 ? *scale : 1;  // all elements are zero: any divisor works
    int8::encode(x.data(), x.size(), divisor, codes, path());
    if (take_out) int8::subtract(codes, x.size(), *scale, x.data(), path());
  }
  void add(const uint8_t* codes, const float* scale, std::span<float> out) const {
    int8::add(codes, out.size(), *scale, out.data(), path());
  }
  void check(const sdk::PayloadReader& payload, uint64_t block, const float* scale) const {
    if (!(std::isfinite(*scale) && *scale >= 0))
      throw payload.error("has scale ", *scale, " in block ", block,
                          ", expected a finite scale that is not negative");
  }

  int32_t quantise_on_device(const sdk::device::Quantising<float>& of, void* stream) const {
    const int32_t error = cuda::largest_magnitude(of.work.data(), of.work.size(), of.block,
                                                  of.scales, of.workspace, stream);
    if (error != 0) return error;
    return cuda::nearest_in_tree(of.work.data(), of.work.size(), of.block, of.scales, of.take_out,
                                 of.codes, stream);
  }
  int32_t sum_on_device(std::span<const cuda::CodeSender> senders, const cuda::CodedSum& sum,
                        void* stream) const {
    return cuda::sum_tree(senders, sum, stream);
  }
};

}  // namespace

PENSTOCK_COMPRESSOR(Int8, "compressor/int8", "0.1.0",
                    "8 bits per element from a codebook that is dense near zero",
                    "Dettmers, 8-Bit Approximations for Parallelism in Deep Learning, ICLR 2016");
