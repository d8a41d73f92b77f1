// See chunks.hpp.
#include <kernels/cuda/chunks.hpp>
#include <kernels/cuda/elements.cuh>
#include <kernels/cuda/reduce.hpp>
#include <kernels/cuda/wire.cuh>

namespace penstock::kernels::cuda {
namespace {

struct AsFloat {
  using In = double;
  using Facts = NoFacts;
  const double* sums;
  float* norms;
  __device__ NoFacts facts(uint64_t) const { return {}; }
  __device__ double load(uint64_t c) const { return sums[c]; }
  __device__ void store(uint64_t c, double sum, NoFacts) const {
    norms[c] = static_cast<float>(sum);
  }
};

// The position of the j-th value in the array; n or more for fill-up values.
__device__ uint64_t position_of(const ChosenChunks& chosen, uint64_t j) {
  if (chosen.indices == nullptr) return j;
  const uint64_t which = j / chosen.chunk;
  return chosen.indices[which] * chosen.chunk + (j - which * chosen.chunk);
}

struct FoundEntry {
  uint64_t position;
  float value;
};

template <ValueType kType>
struct TakeChunks {
  using In = FoundEntry;
  using Facts = NoFacts;
  ChosenChunks chosen;
  float* work;
  float limit;
  bool taken;
  typename Wire<kType>::Bits* values;
  __device__ NoFacts facts(uint64_t) const { return {}; }
  __device__ FoundEntry load(uint64_t j) const {
    const uint64_t position = position_of(chosen, j);
    return {position, position < chosen.n ? work[position] : 0.0f};
  }
  __device__ void store(uint64_t j, FoundEntry found, NoFacts) const {
    const auto bits = narrow_within<kType>(found.value, limit);
    values[j] = bits;
    if (!taken || found.position >= chosen.n) return;
    work[found.position] = left_over(found.value, Wire<kType>::widen(bits, 1));
  }
};

template <ValueType kType>
struct SpreadChunks {
  using In = typename Wire<kType>::Bits;
  using Facts = NoFacts;
  ChosenChunks chosen;
  const In* values;
  float mean;
  float* out;
  __device__ NoFacts facts(uint64_t) const { return {}; }
  __device__ In load(uint64_t j) const { return values[j]; }
  __device__ void store(uint64_t j, In bits, NoFacts) const {
    const uint64_t position = position_of(chosen, j);
    if (position < chosen.n) out[position] = Wire<kType>::widen(bits, 1) * mean;
  }
};

uint64_t chunks_of(uint64_t n, uint64_t chunk) {
  return pieces(n, chunk);
}
uint64_t sum_bytes(uint64_t n, uint64_t chunk) {
  return pieces(chunks_of(n, chunk) * sizeof(double), 64) * 64;
}

bool legal(ValueType type, const void* values, const ChosenChunks& chosen, const float* array) {
  if (type == ValueType::kInt8 || chosen.chunk == 0) return false;
  if (chosen.kept > chunks_of(chosen.n, chosen.chunk)) return false;
  return chosen.n == 0 || (values != nullptr && array != nullptr);
}

}  // namespace

uint64_t chunk_norms_workspace_bytes(uint64_t n, uint64_t chunk) noexcept {
  if (n == 0 || chunk == 0) return 0;
  return sum_bytes(n, chunk) + reduce_workspace_bytes(n, chunk);
}

int32_t chunk_norms(const float* x, uint64_t n, uint64_t chunk, float* norms, Workspace workspace,
                    void* stream) noexcept {
  if (chunk == 0) return cudaErrorInvalidValue;
  if (n == 0) return cudaSuccess;
  if (x == nullptr || norms == nullptr || workspace.data == nullptr ||
      !aligned(workspace.data, 64) || workspace.bytes < chunk_norms_workspace_bytes(n, chunk))
    return cudaErrorInvalidValue;
  auto* const sums = static_cast<double*>(workspace.data);
  const uint64_t used = sum_bytes(n, chunk);
  const int32_t error = sums_of_magnitudes(
      x, n, chunk, sums, {static_cast<char*>(workspace.data) + used, workspace.bytes - used},
      stream);
  if (error != cudaSuccess) return error;
  Queue queue(stream);
  each_element(queue, AsFloat{sums, norms}, chunks_of(n, chunk));
  return queue.error();
}

int32_t take_chunks(ValueType type, float* work, const ChosenChunks& chosen, float limit,
                    bool taken, void* values, void* stream) noexcept {
  if (!legal(type, values, chosen, work)) return cudaErrorInvalidValue;
  Queue queue(stream);
  with_wire_type(type, [&]<ValueType kType>() {
    auto* const bits = static_cast<typename Wire<kType>::Bits*>(values);
    each_element(queue, TakeChunks<kType>{chosen, work, limit, taken, bits}, chosen.capacity());
  });
  return queue.error();
}

int32_t spread_chunks(ValueType type, const void* values, const ChosenChunks& chosen, float mean,
                      float* out, void* stream) noexcept {
  if (!legal(type, values, chosen, out)) return cudaErrorInvalidValue;
  Queue queue(stream);
  if (chosen.indices != nullptr) queue.zero(out, chosen.n * sizeof(float));
  with_wire_type(type, [&]<ValueType kType>() {
    const auto* const bits = static_cast<const typename Wire<kType>::Bits*>(values);
    each_element(queue, SpreadChunks<kType>{chosen, bits, mean, out}, chosen.capacity());
  });
  return queue.error();
}

}  // namespace penstock::kernels::cuda
