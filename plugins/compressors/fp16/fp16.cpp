// Half precision on the wire: values are rounded to IEEE binary16 and summed on the way.
#include <kernels/convert.hpp>
#include <methods/cast.hpp>

namespace kernels = penstock::kernels;

using Fp16 = penstock::sdk::HalfCast<PENSTOCK_FLOAT16, kernels::half_share,
                                     kernels::floats_to_halves, kernels::halves_to_floats>;

PENSTOCK_COMPRESSOR(Fp16, "compressor/fp16", "0.1.0",
                    "rounds values to half precision; payloads are summed on the way", "");
