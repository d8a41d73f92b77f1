// Sums of signs with values; see sign.hpp. A tile of the result stays in registers while one sender
// after the other is added to it, so the result is read and written once however many there are.
#include <kernels/cuda/queue.hpp>
#include <kernels/cuda/sign_numbers.cuh>
#include <kernels/cuda/sign_zeros.cuh>

namespace penstock::kernels::cuda {
namespace {

constexpr uint32_t kTileWords = kSignTile / 64;
constexpr uint32_t kItems = kSignTile / kSignThreads;

// Whether it begins with zeros, and what it is multiplied by in the end.
struct Around {
  bool clear;
  float scale;
};

__device__ const uint32_t* half_words(const uint64_t* plane) {
  return reinterpret_cast<const uint32_t*>(plane);
}

// One sender's part of a tile. For all threads of the block.
struct Part {
  const uint32_t* negative;
  const uint32_t* nonzero;  // null: no zeros

  // Of an element in `half`, for a thread whose lane it is.
  __device__ float number(uint32_t half, const SidesOfZero& numbers) const {
    const uint32_t kept = nonzero == nullptr ? 0xffffffffu : nonzero[half];
    if ((kept >> lane() & 1) == 0) return 0.0f;
    return (negative[half] >> lane() & 1) != 0 ? numbers.minus : numbers.plus;
  }
};

__device__ Part part_of(const Signs& signs, uint32_t sender, uint64_t first_word,
                        TileZeros<kTileWords>& zeros) {
  const uint32_t* const negative = half_words(signs.negative + first_word);
  if (signs.nonzero != nullptr) return {negative, half_words(signs.nonzero + first_word)};
  return {negative, zeros.fill(signs, sender, first_word) ? zeros.nonzero : nullptr};
}

__global__ void __launch_bounds__(kSignThreads)
    sum_signs(Senders<ValuedSigns> senders, uint64_t numel, SignRuns runs, Around around,
              float* out) {
  __shared__ TileZeros<kTileWords> zeros;
  __shared__ uint64_t run_of[kTileWords];
  const uint64_t first_word = uint64_t{blockIdx.x} * kTileWords;
  const uint64_t first = first_word * 64 + threadIdx.x;
  if (threadIdx.x < kTileWords) run_of[threadIdx.x] = (first_word + threadIdx.x) / (runs.run / 64);
  float sum[kItems];
#pragma unroll
  for (uint32_t j = 0; j < kItems; ++j) {
    const uint64_t i = first + j * kSignThreads;
    sum[j] = around.clear || i >= numel ? 0.0f : out[i];
  }
  zeros.find([&](uint32_t s) { return senders.all[s].signs; }, senders.n, first_word);
  for (uint32_t s = 0; s < senders.n; ++s) {
    const ValuedSigns& sender = senders.all[s];
    const Part part = part_of(sender.signs, s, first_word, zeros);
    uint64_t run = run_of[0];
    SidesOfZero numbers = numbers_of_run(sender.values, runs.mirrored, run);
#pragma unroll
    for (uint32_t j = 0; j < kItems; ++j) {
      if (first + j * kSignThreads >= numel) continue;
      const uint32_t half = (threadIdx.x + j * kSignThreads) / kWarp;  // the same for a warp
      if (run_of[half / 2] != run) {
        run = run_of[half / 2];
        numbers = numbers_of_run(sender.values, runs.mirrored, run);
      }
      sum[j] += part.number(half, numbers);
    }
  }
#pragma unroll
  for (uint32_t j = 0; j < kItems; ++j) {
    const uint64_t i = first + j * kSignThreads;
    if (i < numel) out[i] = around.scale == 1 ? sum[j] : sum[j] * around.scale;
  }
}

}  // namespace

int32_t sum_valued_signs(std::span<const ValuedSigns> senders, uint64_t numel, SignRuns runs,
                         bool clear, float scale, float* out, void* stream) noexcept {
  if (!legal(runs) || senders.size() > kMostSenders || (numel > 0 && out == nullptr))
    return cudaErrorInvalidValue;
  if (senders.empty() && !clear && scale == 1) return cudaSuccess;
  const auto all = by_value(senders);
  Queue queue(stream);
  queue.run<sum_signs>(pieces(numel, kSignTile), kSignThreads, all, numel, runs,
                       Around{clear, scale}, out);
  return queue.error();
}

}  // namespace penstock::kernels::cuda
