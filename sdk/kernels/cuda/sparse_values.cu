// See sparse_values.hpp.
#include <kernels/cuda/chosen.cuh>
#include <kernels/cuda/elements.cuh>
#include <kernels/cuda/sparse_values.hpp>
#include <kernels/cuda/wire.cuh>
#include <kernels/element/keys.hpp>

namespace penstock::kernels::cuda {
namespace {

// ---- The scale: zero, then the largest magnitude, then the scale of it ----

struct Zero {
  using In = float;
  float* scale;
  template <typename Use>
  __device__ void as(const Use& use) const {
    use(*this);
  }
  __device__ float load(uint64_t) const { return 0; }
  __device__ void store(uint64_t, float zero, NoFacts) const { *scale = zero; }
};

template <ValueType kType>
struct ScaleOfLargest {
  using In = float;
  float* scale;
  template <typename Use>
  __device__ void as(const Use& use) const {
    use(*this);
  }
  __device__ float load(uint64_t) const { return *scale; }
  __device__ void store(uint64_t, float largest, NoFacts) const {
    *scale =
        kType == ValueType::kFloat16 ? power_of_two_below(largest) : scale_that_reaches(largest);
  }
};

struct Largest {
  ChosenEntries chosen;
  uint32_t* largest;
};

// Magnitudes have the order of their bits, so the order of the blocks does not change the result.
__global__ void __launch_bounds__(kElementThreads) find_largest_of(Several<Largest> several) {
  const uint32_t which = body_of_block(several);
  const Largest& mine = several.bodies[which];
  const uint64_t count = count_of(mine.chosen);
  const uint64_t first =
      uint64_t{blockIdx.x - several.first_blocks[which]} * kElementTile + threadIdx.x;
  uint32_t key = 0;
#pragma unroll
  for (uint32_t j = 0; j < kElementItems; ++j) {
    const uint64_t i = first + j * kElementThreads;
    if (i >= count) continue;
    const uint32_t of_entry = magnitude_key(mine.chosen.work[mine.chosen.indices[i]]);
    key = of_entry > key ? of_entry : key;
  }
  key = warp_largest(key);
  if (lane() == 0 && key > 0) atomicMax(mine.largest, key);
}

uint64_t one_scale(const SentEntries&) {
  return 1;
}
uint64_t capacity_of(const SentEntries& sent) {
  return sent.chosen.capacity;
}

template <ValueType kType>
void find_scales(Queue& queue, std::span<const SentEntries> all) {
  each_element_of<Zero>(
      queue, all, [](const SentEntries& sent) { return Zero{sent.scale}; }, one_scale);
  each_several<Largest>(
      all,
      [](const SentEntries& sent) {
        return Largest{sent.chosen, reinterpret_cast<uint32_t*>(sent.scale)};
      },
      capacity_of,
      [&](const Several<Largest>& several) {
        queue.run<find_largest_of>(several.blocks, kElementThreads, several);
      });
  using Scale = ScaleOfLargest<kType>;
  each_element_of<Scale>(
      queue, all, [](const SentEntries& sent) { return Scale{sent.scale}; }, one_scale);
}

// ---- The values ----

// The entries of one payload, with their number and scale.
template <ValueType kType>
struct SendCounted {
  using Bits = typename Wire<kType>::Bits;
  using In = uint32_t;
  const SentEntries& sent;
  uint64_t count;
  float scale;
  // The memory behind the last index is undefined: it is read, but not used.
  __device__ uint32_t load(uint64_t j) const { return sent.chosen.indices[j]; }
  __device__ void store(uint64_t j, uint32_t index, NoFacts) const {
    if (j >= count) return;
    float& entry = sent.chosen.work[index];
    const float exact = entry;
    const Bits bits = Wire<kType>::narrow(exact, scale);
    static_cast<Bits*>(sent.values)[j] = bits;
    if (!sent.is_taken) return;
    if constexpr (kType == ValueType::kFloat32)
      entry = 0;
    else
      entry = exact - Wire<kType>::widen(bits, scale);
  }
};

template <ValueType kType>
struct Send {
  SentEntries sent;
  template <typename Use>
  __device__ void as(const Use& use) const {
    use(SendCounted<kType>{sent, count_of(sent.chosen), wire_scale<kType>(sent.scale)});
  }
};

bool legal(ValueType type, const SentEntries& sent) {
  if (!legal(sent.chosen) || (sent.chosen.capacity > 0 && sent.values == nullptr)) return false;
  return !has_scale(type) || sent.scale != nullptr;
}

}  // namespace

int32_t send_values(ValueType type, std::span<const SentEntries> all, void* stream) noexcept {
  for (const SentEntries& sent : all)
    if (!legal(type, sent)) return cudaErrorInvalidValue;
  Queue queue(stream);
  with_wire_type(type, [&]<ValueType kType>() {
    if constexpr (has_scale(kType)) find_scales<kType>(queue, all);
    each_element_of<Send<kType>>(
        queue, all, [](const SentEntries& sent) { return Send<kType>{sent}; }, capacity_of);
  });
  return queue.error();
}

}  // namespace penstock::kernels::cuda
