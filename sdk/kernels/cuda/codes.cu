// See codes.hpp.
#include <kernels/cuda/codes.hpp>
#include <kernels/cuda/dynamic_tree.cuh>
#include <kernels/cuda/elements.cuh>
#include <kernels/cuda/random_words.cuh>
#include <kernels/threshold_code.hpp>

namespace penstock::kernels::cuda {
namespace {

// ---- Levels of a range ----

struct LevelsOfRanges {
  using In = ValueRange;
  using Facts = NoFacts;
  const ValueRange* ranges;
  uint32_t n_steps;
  RangeLevels* levels;
  __device__ NoFacts facts(uint64_t) const { return {}; }
  __device__ ValueRange load(uint64_t r) const { return ranges[r]; }
  __device__ void store(uint64_t r, const ValueRange& range, NoFacts) const {
    levels[r] = levels_of_range(range, n_steps);
  }
};

template <bool kByChance>
struct RoundToRange {
  using In = float;
  using Facts = RangeLevels;
  float* values;
  const RangeLevels* levels;
  float top;
  WordsOf words;
  bool take_out;
  uint8_t* codes;
  __device__ RangeLevels facts(uint64_t run) const { return levels[run]; }
  __device__ float load(uint64_t i) const { return values[i]; }
  __device__ void store(uint64_t i, float x, const RangeLevels& of) const {
    const float draw = kByChance ? unit_interval(words[i]) : 0.5f;
    const int32_t level = of.step == 0 ? 0 : level_near(x, of.low, of.step, top, draw);
    const auto code = static_cast<uint8_t>(level);
    codes[i] = code;
    if (take_out) values[i] = x - level_value(code, of.low, of.step);
  }
};

// ---- Numbers of the dynamic tree ----

struct NearestInTree {
  using In = float;
  using Facts = float;
  float* values;
  const float* scales;
  bool take_out;
  uint8_t* codes;
  __device__ float facts(uint64_t run) const { return scales[run]; }
  __device__ float load(uint64_t i) const { return values[i]; }
  __device__ void store(uint64_t i, float x, float scale) const {
    const uint8_t code = nearest_code(x / (scale > 0 ? scale : 1.0f));  // 0: all are 0
    codes[i] = code;
    if (take_out) values[i] = x - kDynamicTree.values[code] * scale;
  }
};

// ---- A threshold ----

struct ReachThreshold {
  using In = float;
  using Facts = NoFacts;
  float* values;
  float threshold;
  bool take_out;
  uint8_t* codes;
  __device__ NoFacts facts(uint64_t) const { return {}; }
  __device__ float load(uint64_t i) const { return values[i]; }
  __device__ void store(uint64_t i, float x, NoFacts) const {
    const uint8_t code = threshold_code(x, threshold);
    codes[i] = code;
    // The negative of the threshold is added, as on the CPU, so that -0 becomes 0.
    if (take_out) values[i] = x + threshold_times(code) * -threshold;
  }
};

__global__ void __launch_bounds__(kWarp) keep_number(float number, float* at) {
  if (threadIdx.x == 0) *at = number;
}

}  // namespace

int32_t range_levels(const ValueRange* ranges, uint64_t n_runs, uint32_t n_steps,
                     RangeLevels* levels, void* stream) noexcept {
  if (n_steps == 0 || (n_runs > 0 && (ranges == nullptr || levels == nullptr)))
    return cudaErrorInvalidValue;
  Queue queue(stream);
  each_element(queue, LevelsOfRanges{ranges, n_steps, levels}, n_runs);
  return queue.error();
}

int32_t round_to_range(float* values, uint64_t numel, uint64_t run, const RangeLevels* levels,
                       uint32_t n_steps, const LevelChoice& choice, bool take_out, uint8_t* codes,
                       void* stream) noexcept {
  if (numel > kMostWords || n_steps == 0 || n_steps > 255 ||
      (numel > 0 && (values == nullptr || levels == nullptr || codes == nullptr)))
    return cudaErrorInvalidValue;
  Queue queue(stream);
  const auto top = static_cast<float>(n_steps);
  const WordsOf words(choice.key, choice.first);
  if (choice.by_chance)
    each_element(queue, RoundToRange<true>{values, levels, top, words, take_out, codes}, numel,
                 run);
  else
    each_element(queue, RoundToRange<false>{values, levels, top, words, take_out, codes}, numel,
                 run);
  return queue.error();
}

int32_t nearest_in_tree(float* values, uint64_t numel, uint64_t run, const float* scales,
                        bool take_out, uint8_t* codes, void* stream) noexcept {
  if (numel > 0 && (values == nullptr || scales == nullptr || codes == nullptr))
    return cudaErrorInvalidValue;
  Queue queue(stream);
  each_element(queue, NearestInTree{values, scales, take_out, codes}, numel, run);
  return queue.error();
}

int32_t reach_threshold(float* values, uint64_t numel, float threshold, bool take_out,
                        uint8_t* codes, float* sent, void* stream) noexcept {
  if (sent == nullptr || (numel > 0 && (values == nullptr || codes == nullptr)))
    return cudaErrorInvalidValue;
  Queue queue(stream);
  queue.run<keep_number>(1, kWarp, threshold, sent);
  each_element(queue, ReachThreshold{values, threshold, take_out, codes}, numel);
  return queue.error();
}

}  // namespace penstock::kernels::cuda
