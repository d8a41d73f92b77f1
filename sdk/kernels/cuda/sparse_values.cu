// See sparse_values.hpp.
#include <kernels/cuda/chosen.cuh>
#include <kernels/cuda/elements.cuh>
#include <kernels/cuda/sparse_values.hpp>
#include <kernels/cuda/wire.cuh>
#include <kernels/element/keys.hpp>

namespace penstock::kernels::cuda {
namespace {

template <ValueType kType>
struct Send {
  using Bits = typename Wire<kType>::Bits;
  using In = uint32_t;
  struct Facts {
    uint64_t count;
    float scale;
  };
  ChosenEntries chosen;
  Bits* values;
  const float* scale;
  bool taken;
  __device__ Facts facts(uint64_t) const { return {count_of(chosen), wire_scale<kType>(scale)}; }
  // The memory behind the last index is undefined: it is read, but not used.
  __device__ uint32_t load(uint64_t j) const { return chosen.indices[j]; }
  __device__ void store(uint64_t j, uint32_t index, const Facts& f) const {
    if (j >= f.count) return;
    const float exact = chosen.work[index];
    const Bits bits = Wire<kType>::narrow(exact, f.scale);
    values[j] = bits;
    if (!taken) return;
    if constexpr (kType == ValueType::kFloat32)
      chosen.work[index] = 0;
    else
      chosen.work[index] = exact - Wire<kType>::widen(bits, f.scale);
  }
};

// Magnitudes have the order of their bits, so the order of the blocks does not change the result.
__global__ void __launch_bounds__(kElementThreads)
    find_largest_of(ChosenEntries chosen, uint32_t* largest) {
  const uint64_t count = count_of(chosen);
  const uint64_t first = uint64_t{blockIdx.x} * kElementTile + threadIdx.x;
  uint32_t key = 0;
#pragma unroll
  for (uint32_t j = 0; j < kElementItems; ++j) {
    const uint64_t i = first + j * kElementThreads;
    if (i >= count) continue;
    const uint32_t mine = magnitude_key(chosen.work[chosen.indices[i]]);
    key = mine > key ? mine : key;
  }
  key = warp_largest(key);
  if (lane() == 0 && key > 0) atomicMax(largest, key);
}

}  // namespace

int32_t send_values(ValueType type, const ChosenEntries& chosen, void* values, const float* scale,
                    bool taken, void* stream) noexcept {
  if (!legal(chosen) || (chosen.capacity > 0 && values == nullptr)) return cudaErrorInvalidValue;
  if (has_scale(type) && scale == nullptr) return cudaErrorInvalidValue;
  Queue queue(stream);
  with_wire_type(type, [&]<ValueType kType>() {
    auto* const bits = static_cast<typename Wire<kType>::Bits*>(values);
    each_element(queue, Send<kType>{chosen, bits, scale, taken}, chosen.capacity);
  });
  return queue.error();
}

int32_t largest_of(const ChosenEntries& chosen, float* largest, void* stream) noexcept {
  if (!legal(chosen) || largest == nullptr) return cudaErrorInvalidValue;
  Queue queue(stream);
  queue.zero(largest, sizeof(float));
  queue.run<find_largest_of>(pieces(chosen.capacity, kElementTile), kElementThreads, chosen,
                             reinterpret_cast<uint32_t*>(largest));
  return queue.error();
}

}  // namespace penstock::kernels::cuda
