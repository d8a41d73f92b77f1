// Compensate in the published forms of a memory (memory.h), so that a selection can do it in the
// same sweep: what is selected is looked for while it is still in the cache. All functions are
// [any].
#pragma once

#include <kernels/code_path.hpp>

#include <algorithm>
#include <cstdint>
#include <limits>

namespace penstock::kernels {

// work <- form(work, grad), with work and u from where they were before, and g = unscale * grad:
//   AFFINE      work = beta * work + gamma * g
//   HEAVY_BALL  u = beta * u + g;    work = work + u
//   NESTEROV    u = beta * (u + g);  work = work + u + g
struct Fold {
  uint32_t form;  // PENSTOCK_FORM_*, not NONE
  float beta;
  float gamma;
  float unscale;  // 1 / grad_scale
  const float* grad;
  float* work;
  float* momentum;  // u; null for AFFINE
  // Where work and u are read, if they are not to be found where they go.
  const float* work_before = nullptr;
  const float* momentum_before = nullptr;

  constexpr const float* work_from() const { return work_before == nullptr ? work : work_before; }
  constexpr const float* momentum_from() const {
    return momentum_before == nullptr ? momentum : momentum_before;
  }

  // The same for what begins `first` elements further on.
  Fold from(uint64_t first) const {
    return {form,
            beta,
            gamma,
            unscale,
            grad + first,
            work + first,
            momentum == nullptr ? nullptr : momentum + first,
            work_before == nullptr ? nullptr : work_before + first,
            momentum_before == nullptr ? nullptr : momentum_before + first};
  }
};

// Elements to compensate before looking at them: gradient, work and momentum in the first-level
// cache. A multiple of what any sweep handles at a time.
inline constexpr uint64_t kFoldTile = 2048;

// Over n elements. No code path or cut changes a bit.
void compensate(const Fold& fold, uint64_t n, CodePath path) noexcept;

// So many bytes that go elsewhere are written past the caches (stream.hpp): they are not read again
// before they have left them, and a plain store would fetch each of their lines first.
inline constexpr uint64_t kLeastStreamed = uint64_t{1} << 20;
constexpr bool streams(const Fold& fold, uint64_t n) {
  return fold.work_before != nullptr && n * sizeof(float) >= kLeastStreamed;
}

// A part of a fold over `whole` elements, at most kMostFolded, for who looks at them next: they are
// where this returns, in `room` or in work. After the last part, end_stream (stream.hpp).
inline constexpr uint64_t kMostFolded = 2 * kFoldTile;
const float* compensate_tile(const Fold& fold, uint64_t n, uint64_t whole, CodePath path,
                             float* room) noexcept;

// What compensate will leave in work[i]; changes nothing.
float compensated(const Fold& fold, uint64_t i) noexcept;

// What clipping leaves of a number: times `factor`, then into [-bound, bound].
struct Clip {
  float factor = 1;
  float bound = std::numeric_limits<float>::infinity();
  constexpr float operator()(float value) const {
    return std::clamp(value * factor, -bound, bound);
  }
  // Of an array with this norm, which is at most `most` afterwards, but for rounding. The small
  // term is that of the usual formula, where a norm of zero divides by it.
  static constexpr Clip to_norm(double norm, double most) {
    return {static_cast<float>(std::min(1.0, most / (norm + 1e-6)))};
  }
};

// As compensate, with g = clip(unscale * grad).
void compensate_clipped(const Fold& fold, const Clip& clip, uint64_t n, CodePath path) noexcept;

}  // namespace penstock::kernels
