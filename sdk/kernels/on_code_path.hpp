// One body, compiled for each instruction set: for loops that the compiler turns into vectors by
// itself and whose operations are exact or correctly rounded, so that the width does not show.
//
//   [[gnu::always_inline]] inline void scale_body(float* x, uint64_t count) { ... }
//   void scale(float* x, uint64_t count, CodePath path) noexcept {
//     PENSTOCK_ON_CODE_PATH(path, void, scale_body, (float* x, uint64_t count), (x, count));
//   }
#pragma once

#include <kernels/code_path.hpp>

#if defined(__x86_64__)
#define PENSTOCK_ON_CODE_PATH(path, Result, body, parameters, arguments)                  \
  struct Paths {                                                                          \
    [[gnu::target("avx512f")]] static Result avx512 parameters { return body arguments; } \
    [[gnu::target("avx2")]] static Result avx2 parameters { return body arguments; }      \
  };                                                                                      \
  if (path == ::penstock::kernels::CodePath::kAvx512) return Paths::avx512 arguments;     \
  if (path == ::penstock::kernels::CodePath::kAvx2) return Paths::avx2 arguments;         \
  return body arguments
#else
#define PENSTOCK_ON_CODE_PATH(path, Result, body, parameters, arguments) \
  (void)path;                                                            \
  return body arguments
#endif
