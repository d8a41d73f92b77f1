// A C door to the selection kernel and to memcpy for top_k.py, so that all contestants run in one
// process.
#include <kernels/select.hpp>

#include <cstring>

extern "C" {

__attribute__((visibility("default"))) uint64_t bench_select_scratch(uint64_t n, uint64_t k) {
  return penstock::kernels::select_scratch_bytes(n, k);
}
__attribute__((visibility("default"))) void bench_select(const float* x, uint64_t n, uint64_t k,
                                                         uint32_t* indices, float* values,
                                                         void* scratch, uint64_t scratch_bytes) {
  penstock::kernels::select_largest(x, n, k, indices, values, {scratch, scratch_bytes},
                                    penstock::kernels::select_code_path(""));
}
__attribute__((visibility("default"))) void bench_memcpy(void* to, const void* from,
                                                         uint64_t bytes) {
  std::memcpy(to, from, bytes);
}
}
