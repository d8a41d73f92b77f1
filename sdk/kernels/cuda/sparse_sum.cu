// See sparse_sum.hpp.
#include <kernels/cuda/block.cuh>
#include <kernels/cuda/queue.hpp>
#include <kernels/cuda/sparse_sum.hpp>
#include <kernels/cuda/wire.cuh>

#include <algorithm>

namespace penstock::kernels::cuda {
namespace {

// ---- The number for the j-th index of a sender ----

template <ValueType kType>
struct EachValue {
  const typename Wire<kType>::Bits* values;
  float step;
  __device__ explicit EachValue(const SparseSender& sender)
      : values(static_cast<const typename Wire<kType>::Bits*>(sender.values)),
        step(wire_scale<kType>(sender.scale)) {}
  __device__ float operator()(uint64_t j) const { return Wire<kType>::widen(values[j], step); }
};

struct OneValue {
  float value;
  __device__ explicit OneValue(const SparseSender& sender)
      : value(sender.count == 0 ? 0 : *static_cast<const float*>(sender.values)) {}
  __device__ float operator()(uint64_t) const { return value; }
};

// ---- The sum ----

// The first of the sender's entries whose index is not below `bound`. All lanes of a warp must call
// it: each lane reads one of 32 places at a time, so that few loads wait for each other.
__device__ uint64_t first_entry(const SparseSender& sender, uint64_t bound) {
  uint64_t begin = 0, end = sender.count;  // it lies there, or at the end
  while (begin < end) {
    const uint64_t step = (end - begin + kWarp - 1) / kWarp;
    const uint64_t at = begin + (lane() + 1) * step - 1;
    const bool is_below = at < end && sender.indices[at] < bound;
    const uint64_t below = __popc(__ballot_sync(kAllLanes, is_below));
    begin += below * step;
    end = begin + step - 1 < end ? begin + step - 1 : end;
  }
  return begin;
}

// The sum of a block: the last sum whose first block is at or before this block. A sum without
// elements begins where the next sum does.
__device__ uint32_t sum_of_block(const SparseSums& all) {
  uint32_t begin = 0, end = all.n_sums;
  while (end - begin > 1) {
    const uint32_t middle = begin + (end - begin) / 2;
    if (all.targets[middle].first_tile <= blockIdx.x)
      begin = middle;
    else
      end = middle;
  }
  return begin;
}

// A block sums one tile in shared memory, sender after sender. The indices of one sender differ, so
// its entries are added in parallel.
template <typename Values>
__global__ void __launch_bounds__(kSparseSumThreads) sum_tile(SparseSums all) {
  __shared__ float tile[kSparseSumTile];
  __shared__ uint64_t bounds[2 * kMostSenders];  // where each sender begins and ends
  const SparseSums::Target target = all.targets[sum_of_block(all)];
  float* const out = target.out;
  const uint64_t first = uint64_t{blockIdx.x - target.first_tile} * kSparseSumTile;
  const uint64_t end = first + kSparseSumTile < target.n ? first + kSparseSumTile : target.n;
  for (uint64_t i = first + threadIdx.x; i < end; i += kSparseSumThreads)
    tile[i - first] = target.over_zeros ? 0.0f : out[i];
  for (uint32_t task = warp_of_block(); task < 2 * target.n_senders;
       task += kSparseSumThreads / kWarp) {
    const uint64_t found =
        first_entry(all.senders[target.first_sender + task / 2], task % 2 == 0 ? first : end);
    if (lane() == 0) bounds[task] = found;
  }
  __syncthreads();
  for (uint32_t s = 0; s < target.n_senders; ++s) {
    const SparseSender& sender = all.senders[target.first_sender + s];
    const Values values(sender);
    for (uint64_t j = bounds[2 * s] + threadIdx.x; j < bounds[2 * s + 1]; j += kSparseSumThreads)
      tile[sender.indices[j] - first] += values(j);
    __syncthreads();
  }
  const float scale = target.scale;
  for (uint64_t i = first + threadIdx.x; i < end; i += kSparseSumThreads)
    out[i] = scale == 1 ? tile[i - first] : tile[i - first] * scale;
}

bool legal(const SparseSums& sums, const SparseSums::Target& target, bool has_scales) {
  if (target.n_senders > kMostSenders || target.n > uint64_t{1} << 32 ||
      (target.n > 0 && target.out == nullptr))
    return false;
  const std::span senders(sums.senders + target.first_sender, target.n_senders);
  return std::all_of(senders.begin(), senders.end(), [&](const SparseSender& sender) {
    return sender.count <= target.n && (!has_scales || sender.scale != nullptr) &&
           (sender.count == 0 || (sender.indices != nullptr && sender.values != nullptr));
  });
}

}  // namespace

static_assert(sizeof(SparseSums) <= 4096, "a launch takes no more");

void SparseSums::add(const SparseSum& sum) {
  std::copy(sum.senders.begin(), sum.senders.end(), senders + n_senders);
  targets[n_sums++] = {sum.out,
                       sum.n,
                       sum.scale,
                       n_tiles,
                       static_cast<uint16_t>(n_senders),
                       static_cast<uint16_t>(sum.senders.size()),
                       sum.over == SumOver::kZeros};
  n_senders += static_cast<uint32_t>(sum.senders.size());
  n_tiles += static_cast<uint32_t>(pieces(sum.n, kSparseSumTile));
}

int32_t sum_sparse(const SparseSums& sums, void* stream, ValueType type) noexcept {
  const std::span targets(sums.targets, sums.n_sums);
  const bool has_scales = !sums.has_one_value && has_scale(type);
  if (!std::all_of(targets.begin(), targets.end(), [&](const SparseSums::Target& target) {
        return legal(sums, target, has_scales);
      }))
    return cudaErrorInvalidValue;
  Queue queue(stream);
  if (sums.has_one_value) {
    queue.run<sum_tile<OneValue>>(sums.n_tiles, kSparseSumThreads, sums);
    return queue.error();
  }
  with_wire_type(type, [&]<ValueType kType>() {
    queue.run<sum_tile<EachValue<kType>>>(sums.n_tiles, kSparseSumThreads, sums);
  });
  return queue.error();
}

int32_t sum_sparse(std::span<const SparseSender> senders, SumOver over, float scale, float* out,
                   uint64_t n, void* stream, ValueType type) noexcept {
  SparseSums one;
  if (!one.has_room_for(senders.size())) return cudaErrorInvalidValue;
  one.add({senders, over, scale, out, n});
  return sum_sparse(one, stream, type);
}

}  // namespace penstock::kernels::cuda
