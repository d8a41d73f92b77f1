// See stochastic.hpp. The arithmetic of one element is in element/rounding.hpp.
#include <kernels/cuda/elements.cuh>
#include <kernels/cuda/random_words.cuh>
#include <kernels/cuda/stochastic.hpp>
#include <kernels/element/rounding.hpp>
#include <kernels/sign.hpp>

#include <cmath>

namespace penstock::kernels::cuda {
namespace {

// ---- Steps, scales and bases of grids: few numbers ----

struct StepsOfLargest {
  using In = float;
  using Facts = NoFacts;
  const float* largest;
  uint32_t levels;
  float* steps;
  __device__ NoFacts facts(uint64_t) const { return {}; }
  __device__ float load(uint64_t r) const { return largest[r]; }
  __device__ void store(uint64_t r, float reach, NoFacts) const {
    steps[r] = step_that_reaches(double{reach}, levels);
  }
};

struct StepsOfNorm {
  using In = double;
  using Facts = NoFacts;
  const Moments* moments;
  uint32_t levels;
  float* steps;
  __device__ NoFacts facts(uint64_t) const { return {}; }
  __device__ double load(uint64_t r) const { return moments[r].sum_of_squares; }
  __device__ void store(uint64_t r, double squares, NoFacts) const {
    steps[r] = step_that_reaches(std::sqrt(squares), levels);
  }
};

struct ClippedScale {
  using In = Moments;
  using Facts = NoFacts;
  const Moments* moments;
  double numel;
  double clip;
  float* scale;
  __device__ NoFacts facts(uint64_t) const { return {}; }
  __device__ Moments load(uint64_t) const { return *moments; }
  __device__ void store(uint64_t, const Moments& all, NoFacts) const {
    const double most = double{all.largest};
    const double bound = clip * std::sqrt(all.sum_of_squares / numel);
    *scale = clip == 0 || most == 0 || most < bound ? all.largest : static_cast<float>(bound);
  }
};

struct Bases {
  using In = float;
  using Facts = NoFacts;
  const float* largest;
  uint8_t* bases;
  __device__ NoFacts facts(uint64_t) const { return {}; }
  __device__ float load(uint64_t r) const { return largest[r]; }
  __device__ void store(uint64_t r, float x, NoFacts) const {
    bases[r] = static_cast<uint8_t>(base_of_powers(x));
  }
};

// ---- Levels ----

struct StepAndInverse {
  float step;
  Inverse inverse;
};

struct RoundToLevels {
  using In = float;
  using Facts = StepAndInverse;
  float* values;
  const float* steps;
  int32_t levels;
  WordsOf words;
  bool take_out;
  uint8_t* codes;
  __device__ Facts facts(uint64_t run) const {
    const float step = steps[run];
    return {step, step == 0 ? Inverse{0, 0} : inverse_of(step, kLevelUnits)};
  }
  __device__ float load(uint64_t i) const { return values[i]; }
  __device__ void store(uint64_t i, float x, const Facts& grid) const {
    if (grid.step == 0) {
      codes[i] = 0;
      return;
    }
    const int32_t level = signed_level(x, grid.inverse, levels, words[i]);
    codes[i] = static_cast<uint8_t>(level);
    if (take_out) values[i] = x - static_cast<float>(level) * grid.step;
  }
};

struct AddLevels {
  struct In {
    uint8_t code;
    float before;
  };
  using Facts = float;
  const uint8_t* codes;
  const float* steps;
  bool clear;
  float* out;
  __device__ float facts(uint64_t run) const { return steps[run]; }
  __device__ In load(uint64_t i) const { return {codes[i], clear ? 0.0f : out[i]}; }
  __device__ void store(uint64_t i, In in, float step) const {
    out[i] = in.before + static_cast<float>(static_cast<int8_t>(in.code)) * step;
  }
};

// ---- Powers ----

struct RoundToPowers {
  using In = float;
  using Facts = uint32_t;
  float* values;
  const uint8_t* bases;
  WordsOf words;
  bool take_out;
  uint8_t* codes;
  __device__ uint32_t facts(uint64_t run) const { return bases[run]; }
  __device__ float load(uint64_t i) const { return values[i]; }
  __device__ void store(uint64_t i, float x, uint32_t base) const {
    const int32_t code = power_code(x, static_cast<int32_t>(base), words[i]);
    codes[i] = static_cast<uint8_t>(code);
    if (take_out) values[i] = x - power_of_code(static_cast<uint32_t>(code), base);
  }
};

struct AddPowers {
  using In = AddLevels::In;
  using Facts = uint32_t;
  const uint8_t* codes;
  const uint8_t* bases;
  bool clear;
  float* out;
  __device__ uint32_t facts(uint64_t run) const { return bases[run]; }
  __device__ In load(uint64_t i) const { return {codes[i], clear ? 0.0f : out[i]}; }
  __device__ void store(uint64_t i, In in, uint32_t base) const {
    out[i] = in.before + power_of_code(in.code, base);
  }
};

// ---- All or nothing ----

// As in the packing of signs, a warp votes on 32 elements at a time.
constexpr uint32_t kRounds = kSignTile / kSignThreads;

__global__ void __launch_bounds__(kSignThreads)
    choose_signs(float* values, uint64_t numel, const float* scale_at, WordsOf words, bool take_out,
                 uint32_t* negative, uint32_t* nonzero, uint64_t n_halves) {
  const float scale = *scale_at;
  const Inverse inverse = inverse_of(scale, kChoiceUnits);
  const uint64_t first =
      uint64_t{blockIdx.x} * kSignTile + warp_of_block() * (kRounds * kWarp) + lane();
  uint32_t below = 0, kept = 0;  // half words that this lane writes
  for (uint32_t round = 0; round < kRounds; round += kElementItems) {
    float x[kElementItems];
#pragma unroll
    for (uint32_t j = 0; j < kElementItems; ++j) {
      const uint64_t i = first + (round + j) * kWarp;
      x[j] = i < numel ? values[i] : 0.0f;
    }
#pragma unroll
    for (uint32_t j = 0; j < kElementItems; ++j) {
      const uint64_t i = first + (round + j) * kWarp;
      const float scaled = magnitude(x[j]) * inverse.boost * inverse.factor;
      const float bounded = scaled < kChoiceUnits ? scaled : kChoiceUnits;
      const bool chosen = i < numel && scale != 0.0f &&
                          static_cast<int32_t>(bounded) > static_cast<int32_t>(words[i] >> 8);
      const bool is_below = chosen && (std::bit_cast<uint32_t>(x[j]) >> 31) != 0;
      const uint32_t all_chosen = __ballot_sync(kAllLanes, chosen);
      const uint32_t all_below = __ballot_sync(kAllLanes, is_below);
      if (lane() == round + j) {
        kept = all_chosen;
        below = all_below;
      }
      // A zero is added to elements that are not chosen, as on the CPU, so that -0 becomes 0.
      if (take_out && scale != 0.0f && i < numel)
        values[i] = x[j] + (chosen ? (is_below ? scale : -scale) : 0.0f);
    }
  }
  static_assert(kRounds == kWarp, "each lane keeps one half word");
  const uint64_t half = (first - lane()) / kWarp + lane();
  if (half >= n_halves) return;
  negative[half] = below;
  nonzero[half] = kept;
}

}  // namespace

int32_t grid_steps_of_largest(const float* largest, uint64_t n_runs, uint32_t levels, float* steps,
                              void* stream) noexcept {
  if (levels == 0 || (n_runs > 0 && (largest == nullptr || steps == nullptr)))
    return cudaErrorInvalidValue;
  Queue queue(stream);
  each_element(queue, StepsOfLargest{largest, levels, steps}, n_runs);
  return queue.error();
}

int32_t grid_steps_of_norm(const Moments* moments, uint64_t n_runs, uint32_t levels, float* steps,
                           void* stream) noexcept {
  if (levels == 0 || (n_runs > 0 && (moments == nullptr || steps == nullptr)))
    return cudaErrorInvalidValue;
  Queue queue(stream);
  each_element(queue, StepsOfNorm{moments, levels, steps}, n_runs);
  return queue.error();
}

int32_t round_to_levels(float* values, uint64_t numel, uint64_t run, const float* steps,
                        uint32_t levels, RandomKey key, uint64_t first, bool take_out,
                        uint8_t* codes, void* stream) noexcept {
  if (numel > kMostWords || levels == 0 || levels > 127 || steps == nullptr ||
      (numel > 0 && (values == nullptr || codes == nullptr)))
    return cudaErrorInvalidValue;
  Queue queue(stream);
  each_element(queue,
               RoundToLevels{values, steps, static_cast<int32_t>(levels), WordsOf(key, first),
                             take_out, codes},
               numel, run);
  return queue.error();
}

int32_t add_levels(const uint8_t* codes, uint64_t numel, uint64_t run, const float* steps,
                   bool clear, float* out, void* stream) noexcept {
  if (steps == nullptr || (numel > 0 && (codes == nullptr || out == nullptr)))
    return cudaErrorInvalidValue;
  Queue queue(stream);
  each_element(queue, AddLevels{codes, steps, clear, out}, numel, run);
  return queue.error();
}

int32_t clipped_scale(const Moments* moments, uint64_t numel, double clip, float* scale,
                      void* stream) noexcept {
  if (!(clip >= 0) || moments == nullptr || scale == nullptr) return cudaErrorInvalidValue;
  Queue queue(stream);
  each_element(queue, ClippedScale{moments, static_cast<double>(numel), clip, scale}, 1);
  return queue.error();
}

int32_t round_to_signs(float* values, uint64_t numel, const float* scale, RandomKey key,
                       uint64_t first, bool take_out, uint64_t* negative, uint64_t* nonzero,
                       void* stream) noexcept {
  if (numel > kMostWords || first % 64 != 0 || scale == nullptr ||
      (numel > 0 && (values == nullptr || negative == nullptr || nonzero == nullptr)))
    return cudaErrorInvalidValue;
  Queue queue(stream);
  queue.run<choose_signs>(pieces(numel, kSignTile), kSignThreads, values, numel, scale,
                          WordsOf(key, first), take_out, reinterpret_cast<uint32_t*>(negative),
                          reinterpret_cast<uint32_t*>(nonzero), 2 * sign_words(numel));
  return queue.error();
}

int32_t power_bases(const float* largest, uint64_t n_runs, uint8_t* bases, void* stream) noexcept {
  if (n_runs > 0 && (largest == nullptr || bases == nullptr)) return cudaErrorInvalidValue;
  Queue queue(stream);
  each_element(queue, Bases{largest, bases}, n_runs);
  return queue.error();
}

int32_t round_to_powers(float* values, uint64_t numel, uint64_t run, const uint8_t* bases,
                        RandomKey key, uint64_t first, bool take_out, uint8_t* codes,
                        void* stream) noexcept {
  if (numel > kMostWords || bases == nullptr ||
      (numel > 0 && (values == nullptr || codes == nullptr)))
    return cudaErrorInvalidValue;
  Queue queue(stream);
  each_element(queue, RoundToPowers{values, bases, WordsOf(key, first), take_out, codes}, numel,
               run);
  return queue.error();
}

int32_t add_powers(const uint8_t* codes, uint64_t numel, uint64_t run, const uint8_t* bases,
                   bool clear, float* out, void* stream) noexcept {
  if (bases == nullptr || (numel > 0 && (codes == nullptr || out == nullptr)))
    return cudaErrorInvalidValue;
  Queue queue(stream);
  each_element(queue, AddPowers{codes, bases, clear, out}, numel, run);
  return queue.error();
}

}  // namespace penstock::kernels::cuda
