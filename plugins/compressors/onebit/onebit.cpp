// 1-bit SGD: each rank sends one bit per element, and two numbers per run of elements, the means of
// its positive and of its negative elements; a memory keeps the rest.
// Source: Seide, Fu, Droppo, Li, Yu, "1-Bit Stochastic Gradient Descent and its Application to
// Data-Parallel Distributed Training of Speech DNNs", Interspeech 2014. See README.md for where
// this differs and why.
#include <methods/dense.hpp>
#include <methods/sign.hpp>

namespace sdk = penstock::sdk;
namespace kernels = penstock::kernels;

namespace {

class OneBit : public sdk::SignCompressor<OneBit> {
 public:
  static inline const sdk::OptionList options{
      sdk::integer_option("bucket", 0)
          .at_least(0)
          .at_most(1 << 30)
          .unit("elements")
          .summary("elements that share a pair of means, a multiple of 64; 0: the whole gradient")};

  explicit OneBit(const sdk::Options& values)
      : SignCompressor(sdk::multiple_of_64(values, "onebit", "bucket")) {}

  static constexpr bool kOnDevices = true;

  // The means of the two classes, which leave the least squared error of all pairs of numbers.
  sdk::SignNumbers numbers(std::span<const float> run) const {
    const kernels::SumsBySign sums = kernels::sums_by_sign(run.data(), run.size(), path());
    return {mean(sums.positive, sums.n_positive), mean(sums.negative, sums.n_negative)};
  }
  void write_numbers(const sdk::Call& call, const sdk::Item& item, uint64_t run,
                     float* means) const {
    sdk::device::write_means_by_sign(call, item, run, means);
  }

 private:
  static float mean(double sum, uint64_t count) {
    return count == 0 ? 0.0f : static_cast<float>(sum / static_cast<double>(count));
  }
};

}  // namespace

PENSTOCK_COMPRESSOR(OneBit, "compressor/onebit", "0.1.0",
                    "one bit per element and the means of both signs, with error feedback",
                    "Seide et al., 1-Bit Stochastic Gradient Descent and its Application to "
                    "Data-Parallel Distributed Training of Speech DNNs, Interspeech 2014");
