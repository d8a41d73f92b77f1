// See sparse_sum.hpp.
#include <kernels/cuda/block.cuh>
#include <kernels/cuda/queue.hpp>
#include <kernels/cuda/sparse_sum.hpp>
#include <kernels/cuda/wire.cuh>

#include <algorithm>

namespace penstock::kernels::cuda {
namespace {

// The first of the sender's entries whose index is not below `bound`.
__device__ uint64_t first_entry(const SparseSender& sender, uint64_t bound) {
  uint64_t begin = 0, end = sender.count;
  while (begin < end) {
    const uint64_t middle = begin + (end - begin) / 2;
    if (sender.indices[middle] < bound)
      begin = middle + 1;
    else
      end = middle;
  }
  return begin;
}

// A block sums one tile in shared memory, sender after sender. Indices of one sender differ, so its
// entries are added all at once.
template <ValueType kType>
__global__ void __launch_bounds__(kSparseSumThreads)
    sum_tile(Senders<SparseSender> senders, bool over_zeros, float scale, float* out, uint64_t n) {
  __shared__ float tile[kSparseSumTile];
  __shared__ uint64_t begins[kMostSenders], ends[kMostSenders];
  const uint64_t first = uint64_t{blockIdx.x} * kSparseSumTile;
  const uint64_t end = first + kSparseSumTile < n ? first + kSparseSumTile : n;
  for (uint64_t i = first + threadIdx.x; i < end; i += kSparseSumThreads)
    tile[i - first] = over_zeros ? 0.0f : out[i];
  if (threadIdx.x < senders.n) {
    begins[threadIdx.x] = first_entry(senders.all[threadIdx.x], first);
    ends[threadIdx.x] = first_entry(senders.all[threadIdx.x], end);
  }
  __syncthreads();
  for (uint32_t s = 0; s < senders.n; ++s) {
    const SparseSender& sender = senders.all[s];
    const auto* const values = static_cast<const typename Wire<kType>::Bits*>(sender.values);
    const float step = wire_scale<kType>(sender.scale);
    for (uint64_t j = begins[s] + threadIdx.x; j < ends[s]; j += kSparseSumThreads)
      tile[sender.indices[j] - first] += Wire<kType>::widen(values[j], step);
    __syncthreads();
  }
  for (uint64_t i = first + threadIdx.x; i < end; i += kSparseSumThreads)
    out[i] = scale == 1 ? tile[i - first] : tile[i - first] * scale;
}

bool legal(std::span<const SparseSender> senders, const float* out, uint64_t n, ValueType type) {
  if (senders.size() > kMostSenders || n > uint64_t{1} << 32 || (n > 0 && out == nullptr))
    return false;
  return std::all_of(senders.begin(), senders.end(), [&](const SparseSender& sender) {
    return sender.count <= n && (type != ValueType::kInt8 || sender.scale != nullptr) &&
           (sender.count == 0 || (sender.indices != nullptr && sender.values != nullptr));
  });
}

}  // namespace

int32_t sum_sparse(std::span<const SparseSender> senders, SumOver over, float scale, float* out,
                   uint64_t n, void* stream, ValueType type) noexcept {
  if (!legal(senders, out, n, type)) return cudaErrorInvalidValue;
  const auto all = by_value(senders);
  Queue queue(stream);
  with_wire_type(type, [&]<ValueType kType>() {
    queue.run(sum_tile<kType>, pieces(n, kSparseSumTile), kSparseSumThreads, all,
              over == SumOver::kZeros, scale, out, n);
  });
  return queue.error();
}

}  // namespace penstock::kernels::cuda
