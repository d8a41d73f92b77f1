// See coded_sum.hpp. A thread keeps its elements of the result in registers while one sender after
// the other is added.
#include <kernels/cuda/block.cuh>
#include <kernels/cuda/coded_sum.hpp>
#include <kernels/cuda/dynamic_tree.cuh>
#include <kernels/cuda/elements.cuh>
#include <kernels/element/rounding.hpp>
#include <kernels/pack_bits.hpp>
#include <kernels/range_levels.hpp>
#include <kernels/threshold_code.hpp>

namespace penstock::kernels::cuda {
namespace {

// `Coding` gives the values of a sender's codes:
//   using Sender = ...;
//   using Facts = ...;                                   the data that the elements of a run share
//   Facts facts(const Sender&, uint64_t run) const;
//   float value(const Sender&, uint64_t i, const Facts&) const;
// A tile never crosses the end of a run (see elements.cuh).
template <uint32_t kTeam, typename Coding>
__global__ void __launch_bounds__(kElementThreads)
    sum_tile(Coding coding, Senders<typename Coding::Sender> senders, CodedSum sum, uint64_t run,
             uint32_t tiles_per_run) {
  const Place<kTeam> mine(sum.numel, run, tiles_per_run);
  if (!mine.exists(sum.numel)) return;
  float total[kElementItems];
#pragma unroll
  for (uint32_t j = 0; j < kElementItems; ++j)
    total[j] = sum.over == SumOver::kZeros || mine.at(j) >= mine.end ? 0.0f : sum.out[mine.at(j)];
  for (uint32_t s = 0; s < senders.n; ++s) {
    const typename Coding::Sender& sender = senders.all[s];
    const typename Coding::Facts facts = coding.facts(sender, mine.run);
#pragma unroll
    for (uint32_t j = 0; j < kElementItems; ++j)
      if (mine.at(j) < mine.end) total[j] += coding.value(sender, mine.at(j), facts);
  }
#pragma unroll
  for (uint32_t j = 0; j < kElementItems; ++j)
    if (mine.at(j) < mine.end)
      sum.out[mine.at(j)] = sum.scale == 1 ? total[j] : total[j] * sum.scale;
}

template <typename Coding>
int32_t sum_codes(const Coding& coding, std::span<const typename Coding::Sender> senders,
                  const CodedSum& sum, void* stream) {
  if (senders.size() > kMostSenders || (sum.numel > 0 && sum.out == nullptr))
    return cudaErrorInvalidValue;
  if (sum.numel == 0) return cudaSuccess;
  const auto all = by_value(senders);
  Queue queue(stream);
  with_team(sum.numel, sum.run,
            [&]<uint32_t kTeam>(uint64_t run, uint32_t tiles_per_run, uint64_t blocks) {
              queue.run<sum_tile<kTeam, Coding>>(blocks, kElementThreads, coding, all, sum, run,
                                                 tiles_per_run);
            });
  return queue.error();
}

bool legal_width(unsigned bits) {
  return bits >= 1 && bits <= kMaxPackedBits;
}

// ---- The values of codes ----

// Code i of a sequence without gaps; a code lies in one or two bytes.
__device__ uint32_t packed_code(const CodeSender& sender, uint64_t i, uint32_t bits) {
  const auto* const bytes = static_cast<const uint8_t*>(sender.codes);
  const uint64_t at = i * bits;
  const auto shift = static_cast<uint32_t>(at % 8);
  uint32_t code = uint32_t{bytes[at / 8]} >> shift;
  if (shift + bits > 8) code |= uint32_t{bytes[at / 8 + 1]} << (8 - shift);
  return code & ((1u << bits) - 1);
}
__device__ uint32_t byte_code(const CodeSender& sender, uint64_t i) {
  return static_cast<const uint8_t*>(sender.codes)[i];
}
template <typename Number>
__device__ Number number_of(const CodeSender& sender, uint64_t run) {
  return static_cast<const Number*>(sender.numbers)[run];
}

struct LevelCodes {
  using Sender = CodeSender;
  using Facts = float;
  uint32_t bits;
  __device__ float facts(const CodeSender& sender, uint64_t run) const {
    return number_of<float>(sender, run);
  }
  __device__ float value(const CodeSender& sender, uint64_t i, float step) const {
    const uint32_t half = 1u << (bits - 1);
    const auto level = static_cast<int32_t>((packed_code(sender, i, bits) ^ half) - half);
    return static_cast<float>(level) * step;
  }
};

struct RangeCodes {
  using Sender = CodeSender;
  using Facts = RangeLevels;
  uint32_t bits;
  __device__ RangeLevels facts(const CodeSender& sender, uint64_t run) const {
    return number_of<RangeLevels>(sender, run);
  }
  __device__ float value(const CodeSender& sender, uint64_t i, const RangeLevels& levels) const {
    const auto code = static_cast<uint8_t>(packed_code(sender, i, bits));
    return level_value(code, levels.low, levels.step);
  }
};

struct ThresholdCodes {
  using Sender = CodeSender;
  using Facts = float;
  __device__ float facts(const CodeSender& sender, uint64_t run) const {
    return number_of<float>(sender, run);
  }
  __device__ float value(const CodeSender& sender, uint64_t i, float threshold) const {
    return threshold_times(packed_code(sender, i, 2)) * threshold;
  }
};

struct PowerCodes {
  using Sender = CodeSender;
  using Facts = uint32_t;
  __device__ uint32_t facts(const CodeSender& sender, uint64_t run) const {
    return number_of<uint8_t>(sender, run);
  }
  __device__ float value(const CodeSender& sender, uint64_t i, uint32_t base) const {
    return power_of_code(byte_code(sender, i), base);
  }
};

struct TreeCodes {
  using Sender = CodeSender;
  using Facts = float;
  __device__ float facts(const CodeSender& sender, uint64_t run) const {
    return number_of<float>(sender, run);
  }
  __device__ float value(const CodeSender& sender, uint64_t i, float scale) const {
    return kDynamicTree.values[byte_code(sender, i)] * scale;
  }
};

struct ChoicePlanes {
  using Sender = ChosenSigns;
  using Facts = float;
  __device__ float facts(const ChosenSigns& sender, uint64_t) const { return *sender.scale; }
  __device__ float value(const ChosenSigns& sender, uint64_t i, float scale) const {
    const auto bit = static_cast<uint32_t>(i % 64);
    if ((sender.nonzero[i / 64] >> bit & 1) == 0) return 0.0f;
    return (sender.negative[i / 64] >> bit & 1) != 0 ? -scale : scale;
  }
};

}  // namespace

int32_t sum_levels(std::span<const CodeSender> senders, unsigned bits, const CodedSum& sum,
                   void* stream) noexcept {
  if (!legal_width(bits)) return cudaErrorInvalidValue;
  return sum_codes(LevelCodes{bits}, senders, sum, stream);
}

int32_t sum_range_levels(std::span<const CodeSender> senders, unsigned bits, const CodedSum& sum,
                         void* stream) noexcept {
  if (!legal_width(bits)) return cudaErrorInvalidValue;
  return sum_codes(RangeCodes{bits}, senders, sum, stream);
}

int32_t sum_thresholds(std::span<const CodeSender> senders, const CodedSum& sum,
                       void* stream) noexcept {
  return sum_codes(ThresholdCodes{}, senders, sum, stream);
}

int32_t sum_powers(std::span<const CodeSender> senders, const CodedSum& sum,
                   void* stream) noexcept {
  return sum_codes(PowerCodes{}, senders, sum, stream);
}

int32_t sum_tree(std::span<const CodeSender> senders, const CodedSum& sum, void* stream) noexcept {
  return sum_codes(TreeCodes{}, senders, sum, stream);
}

int32_t sum_chosen_signs(std::span<const ChosenSigns> senders, const CodedSum& sum,
                         void* stream) noexcept {
  CodedSum all = sum;
  all.run = 0;
  return sum_codes(ChoicePlanes{}, senders, all, stream);
}

}  // namespace penstock::kernels::cuda
