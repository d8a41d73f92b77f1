// See fold.hpp. One body is compiled for several instruction sets; contraction is off, so their
// bits are equal.
#include <kernels/finite.hpp>
#include <kernels/fold.hpp>
#include <kernels/stream.hpp>

#include <penstock/memory.h>
#include <kernels/element/fold_form.hpp>

#include <algorithm>
#include <atomic>

namespace penstock::kernels {
namespace {

// Applies the fold with copies of the fields, so that the compiler knows that stores to work do not
// change them. Two arrays are either identical or do not overlap.
[[gnu::always_inline]] inline void sweep(const Fold& all, uint64_t n) {
  const Fold fold = all;
  float* work = fold.work;
  const float* from = fold.work_from();
  const float* grad = fold.grad;
  float* u = fold.momentum;
  const float* u_from = fold.momentum_from();
  if (fold.form == PENSTOCK_FORM_AFFINE) {
#pragma GCC ivdep
    for (uint64_t i = 0; i < n; ++i) work[i] = affine(fold, from[i], grad[i]);
  } else if (fold.form == PENSTOCK_FORM_HEAVY_BALL) {
#pragma GCC ivdep
    for (uint64_t i = 0; i < n; ++i) {
      float next = u_from[i];
      work[i] = heavy_ball(fold, from[i], grad[i], next);
      u[i] = next;
    }
  } else if (fold.form == PENSTOCK_FORM_NESTEROV) {
#pragma GCC ivdep
    for (uint64_t i = 0; i < n; ++i) {
      float next = u_from[i];
      work[i] = nesterov(fold, from[i], grad[i], next);
      u[i] = next;
    }
  }
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) void sweep_avx2(const Fold& fold, uint64_t n) {
  sweep(fold, n);
}
__attribute__((target("avx512f"))) void sweep_avx512(const Fold& fold, uint64_t n) {
  sweep(fold, n);
}
#endif

void sweep_on(const Fold& fold, uint64_t n, CodePath path) {
#if defined(__x86_64__)
  if (path == CodePath::kAvx2) return sweep_avx2(fold, n);
  if (path == CodePath::kAvx512) return sweep_avx512(fold, n);
#endif
  (void)path;
  sweep(fold, n);
}

// Several threads may compensate parts of one array.
void inspect(const Fold& fold, const float* results, uint64_t n, CodePath path) {
  if (fold.is_finite != nullptr && !all_finite(results, n, path))
    std::atomic_ref<bool>(*fold.is_finite).store(false, std::memory_order_relaxed);
}

// Prefetches a part of the inputs. The processor's own prefetch stops at the end of a page and
// pauses while results are streamed. Behind the end of an array a prefetch has no effect.
void fetch(const Fold& fold, uint64_t first, uint64_t n) {
  constexpr uint64_t kLine = 64 / sizeof(float);
  for (uint64_t i = first; i < first + n; i += kLine) prefetch(fold, i);
}

}  // namespace

void compensate(const Fold& fold, uint64_t n, CodePath path) noexcept {
  if (streams(fold, n)) {
    alignas(64) float room[kFoldTile];
    for (uint64_t start = 0; start < n; start += kFoldTile)
      (void)compensate_tile(fold.from(start), std::min(kFoldTile, n - start), n, path, room);
    return end_stream();
  }
  sweep_on(fold, n, path);
  inspect(fold, fold.work, n, path);
}

const float* compensate_tile(const Fold& fold, uint64_t n, uint64_t whole, CodePath path,
                             float* room, uint64_t ahead) noexcept {
  if (!streams(fold, whole)) {
    compensate(fold, n, path);
    return fold.work;
  }
  alignas(64) float momentum[kMostFolded];
  Fold near = fold;
  near.momentum_before = fold.momentum_from();
  near.work = room;
  near.momentum = momentum;
  constexpr uint64_t kPart = 256;
  for (uint64_t first = 0; first < n; first += kPart) {
    fetch(near, first + ahead, kPart);
    sweep_on(near.from(first), std::min(kPart, n - first), path);
  }
  inspect(fold, room, n, path);
  stream(fold.work, room, n);
  if (fold.momentum != nullptr) stream(fold.momentum, momentum, n);
  return room;
}

void compensate_clipped(const Fold& fold, const Clip& clip, uint64_t n, CodePath path) noexcept {
  float clipped[kFoldTile];
  for (uint64_t start = 0; start < n; start += kFoldTile) {
    const uint64_t count = std::min(kFoldTile, n - start);
    Fold part = fold.from(start);
    for (uint64_t i = 0; i < count; ++i) clipped[i] = clip(part.grad[i] * part.unscale);
    part.grad = clipped;
    part.unscale = 1;
    compensate(part, count, path);
  }
}

float compensated(const Fold& fold, uint64_t i) noexcept {
  if (fold.form == PENSTOCK_FORM_AFFINE) return affine(fold, fold.work_from()[i], fold.grad[i]);
  float u = fold.momentum_from()[i];
  if (fold.form == PENSTOCK_FORM_HEAVY_BALL)
    return heavy_ball(fold, fold.work_from()[i], fold.grad[i], u);
  return nesterov(fold, fold.work_from()[i], fold.grad[i], u);
}

}  // namespace penstock::kernels
