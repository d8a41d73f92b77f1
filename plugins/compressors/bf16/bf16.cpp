// bfloat16 on the wire: float32 values are rounded to eight significant bits and summed on the way.
#include <kernels/convert.hpp>
#include <methods/cast.hpp>

namespace kernels = penstock::kernels;

using Bf16 = penstock::sdk::HalfCast<PENSTOCK_BFLOAT16, kernels::bfloat16_share,
                                     kernels::floats_to_bfloat16s, kernels::bfloat16s_to_floats>;

PENSTOCK_COMPRESSOR(Bf16, "compressor/bf16", "0.1.0",
                    "rounds values to bfloat16; payloads are summed on the way", "");
