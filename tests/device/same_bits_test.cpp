// The comparison of a device's results with the CPU's, which the check of the kernels uses.
#include "tests/cuda/check/same_bits.hpp"

#include <gtest/gtest.h>

#include <cmath>

namespace penstock::kernels::cuda::check {
namespace {

float of(uint32_t bits) {
  return std::bit_cast<float>(bits);
}
std::vector<uint32_t> bits_of(const std::vector<float>& x) {
  std::vector<uint32_t> bits;
  for (const float value : x) bits.push_back(std::bit_cast<uint32_t>(value));
  return bits;
}

TEST(SameBits, TheNaNOfAGpuEqualsTheNaNOfTheCpu) {
  const std::vector<float> cpu{1, of(0x7fc00000u), 2}, gpu{1, of(0x7fffffffu), 2};
  EXPECT_TRUE(same_bits(cpu, gpu));
  EXPECT_TRUE(same_bits(std::vector<double>{NAN}, std::vector<double>{-NAN}));
}

TEST(SameBits, ANaNEqualsOnlyANaNOfTheSamePosition) {
  EXPECT_FALSE(same_bits(std::vector<float>{1, NAN}, std::vector<float>{NAN, 1}));
  EXPECT_FALSE(same_bits(std::vector<float>{NAN}, std::vector<float>{INFINITY}));
  EXPECT_FALSE(same_bits(std::vector<float>{0}, std::vector<float>{NAN}));
  EXPECT_FALSE(same_bits(std::vector<float>{NAN}, std::vector<float>{NAN, NAN}));
}

TEST(SameBits, ZerosOfTwoSignsDiffer) {
  EXPECT_FALSE(same_bits(std::vector<float>{0.0f}, std::vector<float>{-0.0f}));
  EXPECT_FALSE(
      same_bits(std::vector<float>{1.0f, NAN, 0.0f}, std::vector<float>{1.0f, NAN, -0.0f}));
}

TEST(SameBits, WholeNumbersThatLookLikeNaNDiffer) {
  EXPECT_FALSE(same_bits(std::vector<uint32_t>{0x7fc00000u}, std::vector<uint32_t>{0x7fffffffu}));
  EXPECT_FALSE(same_bits(std::vector<uint16_t>{0x7e00}, std::vector<uint16_t>{0x7fff}));
}

TEST(SameBits, OfFloatsOf16BitsTheTypeSaysWhatIsNaN) {
  using Bits = std::vector<uint16_t>;
  EXPECT_TRUE(same_bits(Bits{0x7e00}, Bits{0xffff}, Half::kFloat16));
  EXPECT_TRUE(same_bits(Bits{0x7fc0}, Bits{0x7fff}, Half::kBfloat16));
  EXPECT_FALSE(same_bits(Bits{0x7c00}, Bits{0x7fff}, Half::kFloat16));   // infinity
  EXPECT_FALSE(same_bits(Bits{0x7e00}, Bits{0x7fff}, Half::kBfloat16));  // a number
  EXPECT_FALSE(same_bits(Bits{0x7f80}, Bits{0xff80}, Half::kBfloat16));
  EXPECT_FALSE(same_bits(Bits{0x7e00}, Bits{0x7e00, 0}, Half::kFloat16));
}

TEST(SameBits, OtherNaNsHaveOtherBitsAndNumbersStay) {
  const std::vector<float> x{1, NAN, -2, NAN, INFINITY, NAN};
  const std::vector<float> others = with_other_nans(x);
  EXPECT_TRUE(same_bits(x, others));
  const std::vector<uint32_t> before = bits_of(x), after = bits_of(others);
  for (const std::size_t i : {1, 3, 5}) EXPECT_NE(before[i], after[i]);
  for (const std::size_t i : {0, 2, 4}) EXPECT_EQ(before[i], after[i]);
}

}  // namespace
}  // namespace penstock::kernels::cuda::check
