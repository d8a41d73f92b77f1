// See strata.hpp.
#include <kernels/cuda/elements.cuh>
#include <kernels/cuda/random_words.cuh>
#include <kernels/cuda/strata.hpp>
#include <kernels/cuda/wire.cuh>

namespace penstock::kernels::cuda {
namespace {

// The positions of draws differ, so only one thread accesses each position.
struct Positions {
  Strata strata;
  WordsOf words;
  explicit Positions(const DrawnStrata& drawn)
      : strata(drawn.strata), words(drawn.key, drawn.first) {}
  __device__ uint32_t operator[](uint64_t draw) const { return strata.position(draw, words[draw]); }
};

struct FoundEntry {
  uint32_t position;
  float value;
};

template <ValueType kType>
struct TakeDrawn {
  using In = FoundEntry;
  using Facts = NoFacts;
  Positions positions;
  float* work;
  float limit;
  bool taken;
  typename Wire<kType>::Bits* values;
  __device__ NoFacts facts(uint64_t) const { return {}; }
  __device__ FoundEntry load(uint64_t j) const {
    const uint32_t position = positions[j];
    return {position, work[position]};
  }
  __device__ void store(uint64_t j, FoundEntry found, NoFacts) const {
    const auto bits = narrow_within<kType>(found.value, limit);
    values[j] = bits;
    if (taken) work[found.position] = left_over(found.value, Wire<kType>::widen(bits, 1));
  }
};

template <ValueType kType>
struct SpreadDrawn {
  using In = typename Wire<kType>::Bits;
  using Facts = NoFacts;
  Positions positions;
  const In* values;
  float scale;
  float mean;
  float* out;
  __device__ NoFacts facts(uint64_t) const { return {}; }
  __device__ In load(uint64_t j) const { return values[j]; }
  __device__ void store(uint64_t j, In bits, NoFacts) const {
    out[positions[j]] = Wire<kType>::widen(bits, 1) * scale * mean;
  }
};

bool legal(ValueType type, const void* values, const DrawnStrata& drawn, const float* array) {
  return type != ValueType::kInt8 && values != nullptr && array != nullptr &&
         drawn.strata.n() < kMostWords;
}

}  // namespace

int32_t take_drawn(ValueType type, float* work, const DrawnStrata& drawn, float limit, bool taken,
                   void* values, void* stream) noexcept {
  if (!legal(type, values, drawn, work)) return cudaErrorInvalidValue;
  Queue queue(stream);
  with_wire_type(type, [&]<ValueType kType>() {
    auto* const bits = static_cast<typename Wire<kType>::Bits*>(values);
    each_element(queue, TakeDrawn<kType>{Positions(drawn), work, limit, taken, bits},
                 drawn.strata.k());
  });
  return queue.error();
}

int32_t spread_drawn(ValueType type, const void* values, const DrawnStrata& drawn, float scale,
                     float mean, float* out, void* stream) noexcept {
  if (!legal(type, values, drawn, out)) return cudaErrorInvalidValue;
  Queue queue(stream);
  queue.zero(out, drawn.strata.n() * sizeof(float));
  with_wire_type(type, [&]<ValueType kType>() {
    const auto* const bits = static_cast<const typename Wire<kType>::Bits*>(values);
    each_element(queue, SpreadDrawn<kType>{Positions(drawn), bits, scale, mean, out},
                 drawn.strata.k());
  });
  return queue.error();
}

}  // namespace penstock::kernels::cuda
