// Half precision on the wire: values are rounded to IEEE binary16 and summed on the way.
#include <kernels/convert.hpp>
#include <methods/dense.hpp>

namespace {

struct Binary16 {
  static constexpr uint32_t kDtype = PENSTOCK_FLOAT16;
  static float share(uint32_t ranks) { return penstock::kernels::half_share(ranks); }
  static void narrow(const float* source, uint16_t* bits, uint64_t count) {
    penstock::kernels::floats_to_halves(source, bits, count);
  }
  static void widen(const uint16_t* bits, float* target, uint64_t count) {
    penstock::kernels::halves_to_floats(bits, target, count);
  }
};
using Fp16 = penstock::sdk::HalfCast<Binary16>;

}  // namespace

PENSTOCK_COMPRESSOR(Fp16, "compressor/fp16", "0.1.0",
                    "rounds values to half precision; ranks are summed on the way", "");
