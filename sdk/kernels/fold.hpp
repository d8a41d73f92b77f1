// Compensate in the published forms of a memory (memory.h), so that a selection can compensate in
// its own sweep: it inspects the results while they are still in the cache. All functions are
// [any].
#pragma once

#include <kernels/code_path.hpp>
#include <kernels/prefetch.hpp>

#include <algorithm>
#include <cstdint>
#include <limits>

namespace penstock::kernels {

// work <- form(work, grad). With g = unscale * grad, and the old work and u on the right:
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
  // The old work and u, if they do not lie in the place of the results; null: in place.
  const float* work_before = nullptr;
  const float* momentum_before = nullptr;
  // If not null, a function of the CPU sets it to false once a new work is not finite. It inspects
  // results while they are in the cache, which saves a sweep over the gradient.
  bool* is_finite = nullptr;

  constexpr const float* work_from() const { return work_before == nullptr ? work : work_before; }
  constexpr const float* momentum_from() const {
    return momentum_before == nullptr ? momentum : momentum_before;
  }

  // The fold over the elements from `first` on.
  Fold from(uint64_t first) const {
    return {form,
            beta,
            gamma,
            unscale,
            grad + first,
            work + first,
            momentum == nullptr ? nullptr : momentum + first,
            work_before == nullptr ? nullptr : work_before + first,
            momentum_before == nullptr ? nullptr : momentum_before + first,
            is_finite};
  }
};

// Elements that are compensated before they are inspected: their gradient, work and momentum fit in
// the first-level cache. It is a multiple of the elements that any sweep handles at a time.
inline constexpr uint64_t kFoldTile = 2048;

// Applies the fold to n elements. Neither the code path nor a cut into ranges changes a bit.
void compensate(const Fold& fold, uint64_t n, CodePath path) noexcept;

// From this many bytes on, results that do not replace their inputs are written past the caches
// (stream.hpp): they leave the caches before they are read again, and a plain store would fetch
// each of their lines first.
inline constexpr uint64_t kLeastStreamed = uint64_t{1} << 20;
constexpr bool streams(const Fold& fold, uint64_t n) {
  return fold.work_before != nullptr && n * sizeof(float) >= kLeastStreamed;
}

// Compensates n elements, at most kMostFolded, of a fold over `whole` elements. Returns where the
// results lie, in `room` or in work, so that the caller can inspect them. After the last part the
// caller must call end_stream (stream.hpp). What a fold of the elements `ahead` of those at work
// reads is fetched; these should be the elements that are compensated some 1024 elements later.
inline constexpr uint64_t kMostFolded = 2 * kFoldTile, kFetchedAhead = 1024;
const float* compensate_tile(const Fold& fold, uint64_t n, uint64_t whole, CodePath path,
                             float* room, uint64_t ahead = kFetchedAhead) noexcept;

// The value that compensate will write to work[i]; changes nothing. A caller that reads single
// elements far apart prefetches them some 30 elements early.
float compensated(const Fold& fold, uint64_t i) noexcept;
inline void prefetch(const Fold& fold, uint64_t i) {
  prefetch_line(fold.grad + i);
  prefetch_line(fold.work_from() + i);
  if (fold.momentum != nullptr) prefetch_line(fold.momentum_from() + i);
}

// Clipping of a number: it is multiplied by `factor`, then limited to [-bound, bound].
struct Clip {
  float factor = 1;
  float bound = std::numeric_limits<float>::infinity();
  constexpr float operator()(float value) const {
    return std::clamp(value * factor, -bound, bound);
  }
  // The clip of an array with this norm: afterwards the norm is at most `most`, apart from
  // rounding. The usual formula has the small term too, so that a norm of zero does not divide by
  // zero.
  static constexpr Clip to_norm(double norm, double most) {
    return {static_cast<float>(std::min(1.0, most / (norm + 1e-6)))};
  }
};

// Like compensate, with g = clip(unscale * grad).
void compensate_clipped(const Fold& fold, const Clip& clip, uint64_t n, CodePath path) noexcept;

}  // namespace penstock::kernels
