// One loop, compiled for each instruction set: for loops that the compiler turns into vectors by
// itself and whose operations are exact or correctly rounded, so that the width does not show.
//
//   void scale(float* x, uint64_t count, CodePath path) noexcept {
//     on_code_path(path, [=]() PENSTOCK_LOOP {
//       for (uint64_t i = 0; i < count; ++i) x[i] *= 2;
//     });
//   }
#pragma once

#include <kernels/code_path.hpp>

// This goes behind the parameters of the loop, so that the loop is inlined into each path's
// function.
#define PENSTOCK_LOOP __attribute__((always_inline))

namespace penstock::kernels {

#if defined(__x86_64__)
template <typename Loop>
[[gnu::target("avx512f"), gnu::noinline]] auto on_avx512(Loop loop) {
  return loop();
}
template <typename Loop>
[[gnu::target("avx2"), gnu::noinline]] auto on_avx2(Loop loop) {
  return loop();
}
#endif

// [any] Runs `loop` on this path and returns its result.
template <typename Loop>
auto on_code_path(CodePath path, Loop loop) {
#if defined(__x86_64__)
  if (path == CodePath::kAvx512) return on_avx512(loop);
  if (path == CodePath::kAvx2) return on_avx2(loop);
#endif
  (void)path;
  return loop();
}

}  // namespace penstock::kernels
