// bf16 against the definition of its rounding; the cases are shared by all 16-bit formats.
#include <support/cast_suite.hpp>
#include <support/half.hpp>

namespace penstock::test {
namespace {

INSTANTIATE_TEST_SUITE_P(Bf16, CastCases,
                         ::testing::Values(CastFormat{PENSTOCK_PLUGIN_FILE, to_bfloat16,
                                                      from_bfloat16, 0x1.fep127f,
                                                      kChanceBfloat16}));

}  // namespace
}  // namespace penstock::test
