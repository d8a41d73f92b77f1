// COVAP: each step sends one slice of every gradient as it is, the next step sends the next slice,
// and the memory keeps the rest. Ranks send equal slices, which are summed on the way.
// Source: Meng, Sun, Li, "Near-Linear Scaling Data Parallel Training with Overlapping-Aware
// Gradient Compression", arXiv:2311.04499, 2023. See README.md for where this differs and why.
#include <methods/summed.hpp>
#include <penstock/compressor.hpp>

#include <kernels/cuda/dense.hpp>

namespace sdk = penstock::sdk;
namespace kernels = penstock::kernels;

namespace {

// An item of n elements has slices of ceil(n / interval) elements. The last slice may be shorter.
// Every step sends as many numbers as a slice has, because the transport adds payloads of equal
// counts; zeros fill up the last slice.
class Covap : public sdk::SummedCompressor<Covap> {
 public:
  static inline const sdk::OptionList options{
      sdk::integer_option("interval", 4)
          .at_least(1)
          .at_most(1024)
          .unit("steps")
          .summary(
              "every element is sent once in this number of steps; a step sends one of so many "
              "slices of each gradient")};

  explicit Covap(const sdk::Options& values)
      : SummedCompressor(""), interval_(static_cast<uint64_t>(values.integer("interval"))) {}

  void describe(penstock_compressor_traits& traits) const {
    if (interval_ > 1) traits.flags = PENSTOCK_COMPRESSOR_NEEDS_MEMORY;
    traits.device_types = sdk::device::kWhereKernelsAre;
  }

  void plan(const sdk::PlanCall&, const sdk::Item& item, sdk::CompressorNeed& need) const {
    if (interval_ == 1) {
      plan_dense(item, need);
    } else {
      need.round(PENSTOCK_COMBINE_SUM)
          .section(PENSTOCK_ROLE_VALUES, PENSTOCK_FLOAT32, length(item.numel()));
      need.flags = PENSTOCK_NEED_LINEAR;
    }
    need.part_alignment = 1;  // whether an item is coded does not depend on its size
  }

  bool coded(const sdk::Item&) const { return interval_ > 1; }
  uint64_t entries(uint32_t, uint32_t, const sdk::Item& item) const { return length(item.numel()); }

  void encode_coded(const sdk::Call& call, const sdk::Item& item, std::span<float> sent,
                    const kernels::Fold*) const {
    const std::span<float> slice = slice_of(call, item, item.work());
    const std::span<float> rest = sent.subspan(slice.size());
    if constexpr (sdk::device::kHasKernels)
      if (call.on_device()) return send_on_device(call, item, slice, sent, rest);
    std::copy(slice.begin(), slice.end(), sent.begin());
    sdk::clear(rest);
    if (item.keeps()) sdk::clear(slice);
  }

  void decode_coded(const sdk::Call& call, const sdk::Item& item,
                    std::span<const float> sum) const {
    const std::span<float> out = item.out(), slice = slice_of(call, item, out);
    if constexpr (sdk::device::kHasKernels)
      if (call.on_device()) {
        sdk::device::clear_floats(call, item, out);
        if (!sum.empty()) sdk::device::copy_scaled(call, item, sum, call.result_scale(), slice);
        return;
      }
    sdk::clear(out);
    if (!sum.empty()) sdk::copy_scaled(sum, call.result_scale(), slice);
  }

 private:
  uint64_t length(uint64_t numel) const { return (numel + interval_ - 1) / interval_; }

  // The slice of `values` (work or out) whose turn it is. A small item has fewer than `interval`
  // slices, and each of them is sent more often. Gradients begin with different slices, so that
  // their shorter last slices fall into different steps.
  std::span<float> slice_of(const sdk::Call& call, const sdk::Item& item,
                            std::span<float> values) const {
    if (values.empty()) return values;
    const uint64_t size = length(values.size());
    const uint64_t slices = (values.size() + size - 1) / size;
    const uint64_t first = (call.step->index + item.c().gradient) % slices * size;
    return values.subspan(first, std::min(size, values.size() - first));
  }

  static void send_on_device(const sdk::Call& call, const sdk::Item& item, std::span<float> slice,
                             std::span<float> sent, std::span<float> rest) {
    using kernels::cuda::dense::Left;
    if (!rest.empty()) sdk::device::clear_floats(call, item, rest);
    sdk::device::queue_on_device(call, item, "copy a slice of", [&](void* stream) {
      return kernels::cuda::dense::send_all(slice.data(), sent.data(), slice.size(),
                                            item.keeps() ? Left::kNothing : Left::kAll, stream);
    });
  }

  uint64_t interval_;
};

}  // namespace

PENSTOCK_COMPRESSOR(Covap, "compressor/covap", "0.1.0",
                    "sends one slice of every gradient in each step, in rotation; payloads are "
                    "summed on the way",
                    "Meng, Sun, Li, Near-Linear Scaling Data Parallel Training with "
                    "Overlapping-Aware Gradient Compression, arXiv:2311.04499, 2023");
