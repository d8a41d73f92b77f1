// See levels.hpp.
#include "levels.hpp"

#include <kernels/on_code_path.hpp>

namespace penstock::maxmin {
namespace {

using kernels::CodePath;

constexpr uint64_t kLanes = 16;

// Minimum and maximum lane by lane, because a compiler may not reorder float comparisons.
[[gnu::always_inline]] inline Range range_body(const float* x, uint64_t count) {
  float low[kLanes], high[kLanes];
  for (uint64_t k = 0; k < kLanes; ++k) low[k] = high[k] = x[0];
  uint64_t i = 0;
  for (; i + kLanes <= count; i += kLanes)
    for (uint64_t k = 0; k < kLanes; ++k) {
      low[k] = x[i + k] < low[k] ? x[i + k] : low[k];
      high[k] = x[i + k] > high[k] ? x[i + k] : high[k];
    }
  for (uint64_t k = 0; i < count; ++i, ++k) {
    low[k] = x[i] < low[k] ? x[i] : low[k];
    high[k] = x[i] > high[k] ? x[i] : high[k];
  }
  for (uint64_t k = 1; k < kLanes; ++k) {
    low[0] = low[k] < low[0] ? low[k] : low[0];
    high[0] = high[k] > high[0] ? high[k] : high[0];
  }
  return {low[0], high[0]};
}

}  // namespace

Range range_of(const float* x, uint64_t count, CodePath path) noexcept {
  return kernels::on_code_path(path, [=]() PENSTOCK_LOOP { return range_body(x, count); });
}

void round_to_levels(const float* x, uint64_t count, const Levels& levels, uint32_t n_steps,
                     const float* draws, uint8_t* codes, CodePath path) noexcept {
  if (levels.step == 0) {
    for (uint64_t i = 0; i < count; ++i) codes[i] = 0;
    return;
  }
  const auto top = static_cast<float>(n_steps);
  kernels::on_code_path(path, [=, low = levels.low, step = levels.step]() PENSTOCK_LOOP {
    for (uint64_t i = 0; i < count; ++i)
      codes[i] = static_cast<uint8_t>(kernels::level_near(x[i], low, step, top, draws[i]));
  });
}

void add_levels(const uint8_t* codes, uint64_t count, const Levels& levels, float* out,
                CodePath path) noexcept {
  kernels::on_code_path(path, [=, low = levels.low, step = levels.step]() PENSTOCK_LOOP {
    for (uint64_t i = 0; i < count; ++i) out[i] += kernels::level_value(codes[i], low, step);
  });
}

void subtract_levels(const uint8_t* codes, uint64_t count, const Levels& levels, float* x,
                     CodePath path) noexcept {
  kernels::on_code_path(path, [=, low = levels.low, step = levels.step]() PENSTOCK_LOOP {
    for (uint64_t i = 0; i < count; ++i) x[i] -= kernels::level_value(codes[i], low, step);
  });
}

}  // namespace penstock::maxmin
