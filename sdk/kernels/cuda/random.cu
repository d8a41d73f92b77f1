// Counter-based random numbers; see values.hpp.
#include <kernels/cuda/elements.cuh>
#include <kernels/cuda/random_normal.cuh>
#include <kernels/cuda/random_words.cuh>
#include <kernels/cuda/values.hpp>

namespace penstock::kernels::cuda {
namespace {

// The input of kernels that read nothing.
struct Nothing {};

struct DrawWord {
  using In = Nothing;
  using Facts = NoFacts;
  WordsOf words;
  uint32_t* out;
  __device__ NoFacts facts(uint64_t) const { return {}; }
  __device__ Nothing load(uint64_t) const { return {}; }
  __device__ void store(uint64_t k, Nothing, NoFacts) const { out[k] = words[k]; }
};

struct DrawUniform {
  using In = Nothing;
  using Facts = NoFacts;
  WordsOf words;
  float* out;
  __device__ NoFacts facts(uint64_t) const { return {}; }
  __device__ Nothing load(uint64_t) const { return {}; }
  __device__ void store(uint64_t k, Nothing, NoFacts) const { out[k] = unit_interval(words[k]); }
};

struct DrawNormal {
  using In = Nothing;
  using Facts = NoFacts;
  uint64_t base;
  uint64_t first;
  float* out;
  __device__ NoFacts facts(uint64_t) const { return {}; }
  __device__ Nothing load(uint64_t) const { return {}; }
  __device__ void store(uint64_t k, Nothing, NoFacts) const {
    out[k] = normal_number(base, first + k);
  }
};

}  // namespace

int32_t random_words(RandomKey key, uint64_t first, uint64_t count, uint32_t* out,
                     void* stream) noexcept {
  if (count > kMostWords || (count > 0 && out == nullptr)) return cudaErrorInvalidValue;
  Queue queue(stream);
  each_element(queue, DrawWord{WordsOf(key, first), out}, count);
  return queue.error();
}

int32_t random_uniform(RandomKey key, uint64_t first, uint64_t count, float* out,
                       void* stream) noexcept {
  if (count > kMostWords || (count > 0 && out == nullptr)) return cudaErrorInvalidValue;
  Queue queue(stream);
  each_element(queue, DrawUniform{WordsOf(key, first), out}, count);
  return queue.error();
}

int32_t random_normal(uint64_t seed, uint64_t gradient, uint64_t stream_of_numbers, uint64_t first,
                      uint64_t count, float* out, void* stream) noexcept {
  if (count > 0 && out == nullptr) return cudaErrorInvalidValue;
  Queue queue(stream);
  each_element(queue, DrawNormal{normal_base(seed, gradient, stream_of_numbers), first, out},
               count);
  return queue.error();
}

}  // namespace penstock::kernels::cuda
