// What every family of tools/bench kernels compares with: a copy. Each family adds a file NAME.cpp
// with `extern "C"` functions here, and NAME.py with its rows.
#include <cstdint>
#include <cstring>

extern "C" {
__attribute__((visibility("default"))) void bench_memcpy(void* to, const void* from,
                                                         uint64_t bytes) {
  std::memcpy(to, from, bytes);
}
}
