// fp16 against the definition of its rounding; the cases are shared by all 16-bit formats.
#include <support/cast_suite.hpp>
#include <support/half.hpp>

namespace penstock::test {
namespace {

INSTANTIATE_TEST_SUITE_P(Fp16, CastCases,
                         ::testing::Values(CastFormat{PENSTOCK_PLUGIN_FILE, to_float16,
                                                      from_float16, 65504, kChanceHalf}));

}  // namespace
}  // namespace penstock::test
