// See one_sign.hpp.
#include <kernels/cuda/chosen.cuh>
#include <kernels/cuda/elements.cuh>
#include <kernels/cuda/one_sign.hpp>

namespace penstock::kernels::cuda {
namespace {

struct OfSign {
  using In = float;
  using Facts = NoFacts;
  const float* x;
  float* magnitudes;
  float sign;
  __device__ NoFacts facts(uint64_t) const { return {}; }
  __device__ float load(uint64_t i) const { return x[i]; }
  __device__ void store(uint64_t i, float in, NoFacts) const {
    const float magnitude = sign * in;
    magnitudes[i] = magnitude > 0 ? magnitude : 0.0f;
  }
};

struct TakeMean {
  using In = uint32_t;
  struct Facts {
    uint64_t count;
    float mean;
  };
  ChosenEntries chosen;
  const double* sum;
  float sign;
  bool taken;
  float* mean;
  __device__ Facts facts(uint64_t) const {
    const uint64_t count = count_of(chosen);
    if (count == 0) return {0, 0};
    return {count, sign * static_cast<float>(*sum / static_cast<double>(count))};
  }
  // The memory behind the last index is undefined: it is read, but not used.
  __device__ uint32_t load(uint64_t j) const { return chosen.indices[j]; }
  __device__ void store(uint64_t j, uint32_t index, const Facts& f) const {
    if (j == 0) *mean = f.mean;
    if (taken && j < f.count) chosen.work[index] -= f.mean;
  }
};

float sign_of(bool negative) {
  return negative ? -1.0f : 1.0f;
}

}  // namespace

int32_t magnitudes_of_sign(const float* x, uint64_t n, bool negative, float* magnitudes,
                           void* stream) noexcept {
  if (n > 0 && (x == nullptr || magnitudes == nullptr)) return cudaErrorInvalidValue;
  Queue queue(stream);
  each_element(queue, OfSign{x, magnitudes, sign_of(negative)}, n);
  return queue.error();
}

int32_t take_mean(const ChosenEntries& chosen, const double* sum, bool negative, bool taken,
                  float* mean, void* stream) noexcept {
  if (!legal(chosen) || chosen.capacity == 0 || sum == nullptr || mean == nullptr)
    return cudaErrorInvalidValue;
  Queue queue(stream);
  each_element(queue, TakeMean{chosen, sum, sign_of(negative), taken, mean}, chosen.capacity);
  return queue.error();
}

}  // namespace penstock::kernels::cuda
