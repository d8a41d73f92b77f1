// float32 to the 16-bit types and back: the functions behind conversion.py.
#include <kernels/convert.hpp>

namespace kernels = penstock::kernels;

#define BENCH extern "C" __attribute__((visibility("default")))

BENCH void bench_to_half(const float* x, uint16_t* bits, uint64_t n) {
  kernels::floats_to_halves(x, bits, n);
}
BENCH void bench_from_half(const uint16_t* bits, float* x, uint64_t n) {
  kernels::halves_to_floats(bits, x, n);
}
BENCH void bench_to_bfloat16(const float* x, uint16_t* bits, uint64_t n) {
  kernels::floats_to_bfloat16s(x, bits, n);
}
BENCH void bench_from_bfloat16(const uint16_t* bits, float* x, uint64_t n) {
  kernels::bfloat16s_to_floats(bits, x, n);
}
