// The baselines of every family of tools/bench kernels: a copy, a sweep that only reads, and a
// sweep that changes an array by another array. A family adds a file NAME.cpp with `extern "C"`
// functions here, and NAME.py with its rows.
#include <cstdint>
#include <cstring>

extern "C" {
__attribute__((visibility("default"))) void bench_memcpy(void* to, const void* from,
                                                         uint64_t bytes) {
  std::memcpy(to, from, bytes);
}

// Combines all bits, so that only the reading takes time.
__attribute__((visibility("default"))) uint32_t bench_read(const uint32_t* from, uint64_t n) {
  uint32_t bits = 0;
  for (uint64_t i = 0; i < n; ++i) bits |= from[i];
  return bits;
}
__attribute__((visibility("default"))) void bench_update(float* a, const float* b, uint64_t n) {
  for (uint64_t i = 0; i < n; ++i) a[i] += b[i];
}
}
