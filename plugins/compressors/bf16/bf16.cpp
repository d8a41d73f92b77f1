// bfloat16 on the wire: float32 with its mantissa rounded to eight significant bits, summed on the
// way.
#include <kernels/convert.hpp>
#include <methods/dense.hpp>

namespace {

struct Bfloat16 {
  static constexpr uint32_t kDtype = PENSTOCK_BFLOAT16;
  static float share(uint32_t ranks) { return penstock::kernels::bfloat16_share(ranks); }
  static void narrow(const float* source, uint16_t* bits, uint64_t count) {
    penstock::kernels::floats_to_bfloat16s(source, bits, count);
  }
  static void widen(const uint16_t* bits, float* target, uint64_t count) {
    penstock::kernels::bfloat16s_to_floats(bits, target, count);
  }
};
using Bf16 = penstock::sdk::HalfCast<Bfloat16>;

}  // namespace

PENSTOCK_COMPRESSOR(Bf16, "compressor/bf16", "0.1.0",
                    "rounds values to bfloat16; ranks are summed on the way", "");
