// Threshold binary quantisation: an element whose magnitude reaches the threshold is sent as plus
// or minus the threshold, every other element as nothing; a memory keeps the rest.
// Source: Strom, "Scalable Distributed DNN Training Using Commodity GPU Cloud Computing",
// Interspeech 2015; as in Bai et al., "Gradient Compression Supercharged High-Performance Data
// Parallel DNN Training" (HiPress), SOSP 2021. See README.md for where this differs and why.
#include <kernels/on_code_path.hpp>
#include <kernels/threshold_code.hpp>
#include <methods/dense.hpp>

#include <limits>

namespace sdk = penstock::sdk;
namespace kernels = penstock::kernels;
namespace cuda = penstock::kernels::cuda;

namespace {

constexpr unsigned kBits = 2;

void encode_codes(const float* x, uint64_t count, float threshold, uint8_t* codes,
                  kernels::CodePath path) {
  kernels::on_code_path(path, [=]() PENSTOCK_LOOP {
    for (uint64_t i = 0; i < count; ++i) codes[i] = kernels::threshold_code(x[i], threshold);
  });
}

// x[i] += the value of codes[i]
void add_codes(const uint8_t* codes, uint64_t count, float threshold, float* x,
               kernels::CodePath path) {
  kernels::on_code_path(path, [=]() PENSTOCK_LOOP {
    for (uint64_t i = 0; i < count; ++i) x[i] += kernels::threshold_times(codes[i]) * threshold;
  });
}

// The payload contains the threshold in the units of work: with loss scaling and no memory these
// are not the units of the option.
class Tbq : public sdk::QuantisingCompressor<Tbq> {
 public:
  static inline const sdk::OptionList options{
      sdk::real_option("threshold", 0.05)
          .at_least(std::numeric_limits<float>::min())
          .at_most(1e30)
          .summary("magnitude that an element must reach to be sent; the value that is sent for it "
                   "has this magnitude")};

  explicit Tbq(const sdk::Options& values)
      : QuantisingCompressor(kBits, 0, "tbq"),
        threshold_(static_cast<float>(values.real("threshold"))) {}

  static constexpr bool kOneBlock = true;

  void measure(std::span<const float>, double unit, float* threshold) const {
    *threshold = in_units(unit);
  }
  void quantise(std::span<float> x, const float* threshold, const sdk::Draws&, bool take_out,
                uint8_t* codes) const {
    encode_codes(x.data(), x.size(), *threshold, codes, path());
    if (take_out) add_codes(codes, x.size(), -*threshold, x.data(), path());
  }
  void add(const uint8_t* codes, const float* threshold, std::span<float> out) const {
    add_codes(codes, out.size(), *threshold, out.data(), path());
  }

  void check(const sdk::PayloadReader& payload, uint64_t, const float* scale) const {
    const float threshold = *scale;
    if (!(std::isfinite(threshold) && threshold > 0))
      throw payload.error("has threshold ", threshold, ", expected a finite one above 0");
  }
  // Checks the words, because two bits have one code too many.
  void check_words(const sdk::PayloadReader& payload, std::span<const uint64_t> words,
                   uint64_t numel) const {
    constexpr uint64_t kLowBits = 0x5555555555555555u;
    for (uint64_t w = 0; w < words.size(); ++w) {
      const uint64_t left = numel - w * 32;
      const uint64_t counted = left >= 32 ? ~uint64_t{0} : (uint64_t{1} << 2 * left) - 1;
      if ((words[w] & words[w] >> 1 & kLowBits & counted) != 0)
        throw payload.error("has code ", int{kernels::kNoThresholdCode}, " in word ", w,
                            ", expected 0, 1 or 2");
    }
  }

  int32_t quantise_on_device(const sdk::device::Quantising<float>& of, void* stream) const {
    return cuda::reach_threshold(of.work.data(), of.work.size(), in_units(of.unit), of.take_out,
                                 of.codes, of.scales, stream);
  }
  int32_t sum_on_device(std::span<const cuda::CodeSender> senders, const cuda::CodedSum& sum,
                        void* stream) const {
    return cuda::sum_thresholds(senders, sum, stream);
  }

 private:
  float in_units(double unit) const { return static_cast<float>(threshold_ * unit); }

  float threshold_;
};

}  // namespace

PENSTOCK_COMPRESSOR(Tbq, "compressor/tbq", "0.1.0",
                    "2 bits per element: plus or minus a threshold, or nothing",
                    "Strom, Scalable Distributed DNN Training Using Commodity GPU Cloud Computing, "
                    "Interspeech 2015; Bai et al. (HiPress), SOSP 2021");
