// Sums of signs with values; see sign.hpp. A thread has 32 neighbouring elements, so it reads one
// half word of each plane of a sender, and its sums stay in registers while one sender after the
// other is added. The result is read and written once for any number of senders. It goes through
// shared memory, so that neighbouring threads access neighbouring elements of the result.
#include <kernels/cuda/queue.hpp>
#include <kernels/cuda/sign_numbers.cuh>
#include <kernels/cuda/sign_zeros.cuh>

namespace penstock::kernels::cuda {
namespace {

constexpr uint32_t kItems = 32;
constexpr uint32_t kAhead = 4;  // senders whose words are in flight
constexpr uint32_t kTileElements = kSignSumThreads * kItems;
constexpr uint32_t kTileWords = kTileElements / 64;
static_assert(kMostSenders <= kSignSumThreads, "TileZeros looks for all of them at once");

// Whether the sum begins with zeros, and the final factor.
struct Around {
  bool clear;
  float scale;
};

// The elements of a warp in shared memory. An unused element lies behind the elements of each
// thread, so that the threads of a warp use different banks both for their own elements and for
// neighbouring elements.
class WarpElements {
 public:
  __device__ WarpElements(float* memory, uint64_t first, uint64_t numel)
      : memory_(memory + warp_of_block() * kFloats), first_(first), numel_(numel) {}
  static constexpr uint32_t kFloats = kWarp * (kItems + 1);

  __device__ float& mine(uint32_t j) { return memory_[lane() * (kItems + 1) + j]; }

  __device__ void read(const float* from) {
#pragma unroll 8
    for (uint32_t row = 0; row < kWarp; ++row)
      if (at(row) < numel_) in_row(row) = from[at(row)];
    __syncwarp();
  }
  __device__ void write(float* to) {
    __syncwarp();
#pragma unroll 8
    for (uint32_t row = 0; row < kWarp; ++row)
      if (at(row) < numel_) to[at(row)] = in_row(row);
  }

 private:
  static_assert(kItems == kWarp, "a row is the elements of one thread, an element to each");
  __device__ uint64_t at(uint32_t row) const {
    return first_ + row * kItems + lane();
  }
  __device__ float& in_row(uint32_t row) {
    return memory_[row * (kItems + 1) + lane()];
  }

  float* memory_;
  uint64_t first_;  // first element of the warp
  uint64_t numel_;
};

// A sender's bits and numbers for a thread's elements. These elements are in one run, because a run
// consists of whole words.
struct Part {
  uint32_t negative;
  uint32_t nonzero;
  SidesOfZero numbers;
};

__device__ Part load_part(const ValuedSigns& sender, bool mirrored, uint64_t run, uint64_t half) {
  const auto of_half = [half](const uint64_t* plane) {
    return reinterpret_cast<const uint32_t*>(plane)[half];
  };
  const uint32_t nonzero =
      sender.signs.nonzero != nullptr ? of_half(sender.signs.nonzero) : 0xffffffffu;
  return {of_half(sender.signs.negative), nonzero, numbers_of_run(sender.values, mirrored, run)};
}

__device__ void add(float (&sum)[kItems], const Part& part) {
  const auto number = [&part](uint32_t j) {
    return (part.negative >> j & 1) != 0 ? part.numbers.minus : part.numbers.plus;
  };
  if (part.nonzero == 0xffffffffu) {
#pragma unroll
    for (uint32_t j = 0; j < kItems; ++j) sum[j] += number(j);
  } else {
#pragma unroll
    for (uint32_t j = 0; j < kItems; ++j) sum[j] += (part.nonzero >> j & 1) != 0 ? number(j) : 0.0f;
  }
}

__global__ void __launch_bounds__(kSignSumThreads)
    sum_signs(Senders<ValuedSigns> senders, uint64_t numel, SignRuns runs, Around around,
              float* out) {
  __shared__ TileZeros<kTileWords> zeros;
  __shared__ float memory[kSignSumThreads / kWarp * WarpElements::kFloats];
  const uint64_t first_word = uint64_t{blockIdx.x} * kTileWords;
  const uint64_t half = 2 * first_word + threadIdx.x;
  const uint64_t run = half / 2 / (runs.run / 64);
  WarpElements elements(memory, (half - lane()) * kItems, numel);
  float sum[kItems];
  if (!around.clear) elements.read(out);
#pragma unroll
  for (uint32_t j = 0; j < kItems; ++j)
    sum[j] = around.clear || half * kItems + j >= numel ? 0.0f : elements.mine(j);
  zeros.find([&](uint32_t s) { return senders.all[s].signs; }, senders.n, first_word);
  for (uint32_t first = 0; first < senders.n; first += kAhead) {
    Part parts[kAhead];
#pragma unroll
    for (uint32_t a = 0; a < kAhead; ++a)
      if (first + a < senders.n && half * kItems < numel)
        parts[a] = load_part(senders.all[first + a], runs.mirrored, run, half);
#pragma unroll
    for (uint32_t a = 0; a < kAhead; ++a) {
      const uint32_t s = first + a;
      if (s >= senders.n) break;  // all threads
      if (senders.all[s].signs.nonzero == nullptr &&
          zeros.fill(senders.all[s].signs, s, first_word))
        parts[a].nonzero = zeros.nonzero[threadIdx.x];
      if (half * kItems < numel) add(sum, parts[a]);
    }
  }
#pragma unroll
  for (uint32_t j = 0; j < kItems; ++j)
    elements.mine(j) = around.scale == 1 ? sum[j] : sum[j] * around.scale;
  elements.write(out);
}

}  // namespace

int32_t sum_valued_signs(std::span<const ValuedSigns> senders, uint64_t numel, SignRuns runs,
                         bool clear, float scale, float* out, void* stream) noexcept {
  if (!legal(runs) || senders.size() > kMostSenders || (numel > 0 && out == nullptr))
    return cudaErrorInvalidValue;
  if (senders.empty() && !clear && scale == 1) return cudaSuccess;
  const auto all = by_value(senders);
  Queue queue(stream);
  queue.run<sum_signs>(pieces(numel, kTileElements), kSignSumThreads, all, numel, runs,
                       Around{clear, scale}, out);
  return queue.error();
}

}  // namespace penstock::kernels::cuda
