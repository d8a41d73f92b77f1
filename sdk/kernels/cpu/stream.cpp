// See stream.hpp.
#include <kernels/stream.hpp>

#include <algorithm>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace penstock::kernels {
namespace {
constexpr uint64_t kVector = 4;  // floats of SSE2, which every such processor has
}

void stream(float* to, const float* from, uint64_t count) noexcept {
#if defined(__x86_64__)
  const uint64_t misaligned = reinterpret_cast<uintptr_t>(to) / sizeof(float) % kVector;
  uint64_t at = std::min(misaligned == 0 ? 0 : kVector - misaligned, count);
  std::memcpy(to, from, at * sizeof(float));
  for (; at + kVector <= count; at += kVector) _mm_stream_ps(to + at, _mm_loadu_ps(from + at));
  std::memcpy(to + at, from + at, (count - at) * sizeof(float));
#else
  std::memcpy(to, from, count * sizeof(float));
#endif
}

void end_stream() noexcept {
#if defined(__x86_64__)
  _mm_sfence();
#endif
}

}  // namespace penstock::kernels
