// Sums of signs with values; see sign.hpp. A tile of the result stays in registers while one sender
// after the other is added to it, so the result is read and written once however many there are.
#include <kernels/cuda/queue.hpp>
#include <kernels/cuda/sign.hpp>
#include <kernels/cuda/sign_zeros.cuh>

namespace penstock::kernels::cuda {
namespace {

constexpr uint32_t kTileWords = kSignTile / 64;
constexpr uint32_t kItems = kSignTile / kSignThreads;

__device__ const uint32_t* half_words(const uint64_t* plane) {
  return reinterpret_cast<const uint32_t*>(plane);
}

__global__ void __launch_bounds__(kSignThreads)
    sum_signs(const ValuedSigns* senders, uint64_t n_senders, uint64_t numel, uint64_t run,
              bool clear, float* out) {
  __shared__ TileZeros<kTileWords> zeros;
  __shared__ uint64_t run_of[kTileWords];
  const uint64_t first_word = uint64_t{blockIdx.x} * kTileWords;
  const uint64_t first = first_word * 64 + threadIdx.x;
  if (threadIdx.x < kTileWords) run_of[threadIdx.x] = (first_word + threadIdx.x) / (run / 64);
  float sum[kItems];
#pragma unroll
  for (uint32_t j = 0; j < kItems; ++j) {
    const uint64_t i = first + j * kSignThreads;
    sum[j] = clear || i >= numel ? 0.0f : out[i];
  }
  for (uint64_t from = 0; from < n_senders; from += kSendersAtOnce) {
    const uint64_t left = n_senders - from;
    const uint32_t count = left < kSendersAtOnce ? static_cast<uint32_t>(left) : kSendersAtOnce;
    zeros.find([&](uint64_t r) { return senders[r].signs; }, from, count, first_word);
    for (uint32_t s = 0; s < count; ++s) {
      const ValuedSigns sender = senders[from + s];
      const bool plane = sender.signs.nonzero != nullptr;
      const bool listed = !plane && zeros.fill(sender.signs, s, first_word);
      const uint32_t* const negative = half_words(sender.signs.negative + first_word);
      const uint32_t* const kept = plane ? half_words(sender.signs.nonzero + first_word) : nullptr;
      uint64_t which = run_of[0];
      float plus = sender.values[2 * which], minus = sender.values[2 * which + 1];
#pragma unroll
      for (uint32_t j = 0; j < kItems; ++j) {
        if (first + j * kSignThreads >= numel) continue;
        const uint32_t half = (threadIdx.x + j * kSignThreads) / kWarp;  // the same for a warp
        if (run_of[half / 2] != which) {
          which = run_of[half / 2];
          plus = sender.values[2 * which];
          minus = sender.values[2 * which + 1];
        }
        uint32_t nonzero = 0xffffffffu;
        if (plane) nonzero = kept[half];
        if (listed) nonzero = zeros.nonzero[half];
        const float number = (negative[half] >> lane() & 1) != 0 ? minus : plus;
        sum[j] += (nonzero >> lane() & 1) != 0 ? number : 0.0f;
      }
    }
  }
#pragma unroll
  for (uint32_t j = 0; j < kItems; ++j) {
    const uint64_t i = first + j * kSignThreads;
    if (i < numel) out[i] = sum[j];
  }
}

}  // namespace

int32_t sum_valued_signs(const ValuedSigns* senders, uint64_t n_senders, uint64_t numel,
                         uint64_t run, bool clear, float* out, void* stream) noexcept {
  if (run == 0 || run % 64 != 0 || (numel > 0 && out == nullptr) ||
      (n_senders > 0 && senders == nullptr))
    return cudaErrorInvalidValue;
  Queue queue(stream);
  queue.run(sum_signs, pieces(numel, kSignTile), kSignThreads, senders, n_senders, numel, run,
            clear, out);
  return queue.error();
}

}  // namespace penstock::kernels::cuda
