// Compensate in the published forms of a memory (memory.h), so that a selection can do it in the
// same sweep: what is selected is looked for while it is still in the cache. All functions are
// [any].
#pragma once

#include <kernels/code_path.hpp>

#include <cstdint>

namespace penstock::kernels {

// work <- form(work, grad), with g = unscale * grad:
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

  // The same for what begins `first` elements further on.
  Fold from(uint64_t first) const {
    return {form,
            beta,
            gamma,
            unscale,
            grad + first,
            work + first,
            momentum == nullptr ? nullptr : momentum + first};
  }
};

// Elements to compensate before looking at them: gradient, work and momentum in the first-level
// cache. A multiple of what any sweep handles at a time.
inline constexpr uint64_t kFoldTile = 2048;

// Over n elements. No code path or cut changes a bit.
void compensate(const Fold& fold, uint64_t n, CodePath path) noexcept;

// What compensate will leave in work[i]; changes nothing.
float compensated(const Fold& fold, uint64_t i) noexcept;

}  // namespace penstock::kernels
