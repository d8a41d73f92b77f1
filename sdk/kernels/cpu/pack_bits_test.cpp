// Packed codes against a loop over single bits.
#include <gtest/gtest.h>
#include <kernels/pack_bits.hpp>

#include <random>
#include <vector>

namespace penstock::kernels::pack_bits_test {
namespace {

const std::vector<uint64_t> kCounts{0, 1, 2, 3, 7, 8, 9, 31, 63, 64, 65, 127, 128, 1000, 65537};

std::vector<uint8_t> draw(uint64_t count) {
  std::mt19937 generator(7);
  std::vector<uint8_t> codes(count);
  for (uint8_t& code : codes) code = static_cast<uint8_t>(generator());
  return codes;
}

TEST(PackBits, EveryBitIsWhereTheHeaderSays) {
  for (unsigned bits = 1; bits <= kMaxPackedBits; ++bits)
    for (const uint64_t count : kCounts) {
      const std::vector<uint8_t> codes = draw(count);
      std::vector<uint64_t> expected((count * bits + 63) / 64);
      for (uint64_t i = 0; i < count * bits; ++i)
        expected[i / 64] |= uint64_t{(codes[i / bits] >> (i % bits)) & 1u} << (i % 64);
      ASSERT_EQ(packed_words(count, bits), expected.size());
      std::vector<uint64_t> words(expected.size() + 1, 0xdead);
      pack_bits(codes.data(), count, bits, words.data());
      ASSERT_EQ(words.back(), 0xdeadu) << "overrun";
      words.pop_back();
      ASSERT_EQ(words, expected) << count << " codes of " << bits << " bits";
    }
}

TEST(PackBits, UnpackingGivesTheCodesBackAndIgnoresWhatFollows) {
  for (unsigned bits = 1; bits <= kMaxPackedBits; ++bits)
    for (const uint64_t count : kCounts) {
      std::vector<uint8_t> codes = draw(count);
      for (uint8_t& code : codes) code = static_cast<uint8_t>(code & ((1u << bits) - 1));
      std::vector<uint64_t> words(packed_words(count, bits));
      pack_bits(codes.data(), count, bits, words.data());
      if (count * bits % 64 != 0) words.back() |= ~uint64_t{0} << (count * bits % 64);
      std::vector<uint8_t> found(count + 1, 0xee);
      unpack_bits(words.data(), count, bits, found.data());
      ASSERT_EQ(found.back(), 0xee) << "overrun";
      found.pop_back();
      ASSERT_EQ(found, codes) << count << " codes of " << bits << " bits";
    }
}

TEST(PackBits, RangesOf64CodesPackOnTheirOwn) {
  const std::vector<uint8_t> codes = draw(64 * 5 + 17);
  for (unsigned bits = 1; bits <= kMaxPackedBits; ++bits) {
    std::vector<uint64_t> whole(packed_words(codes.size(), bits)), parts(whole.size());
    pack_bits(codes.data(), codes.size(), bits, whole.data());
    pack_bits(codes.data(), 192, bits, parts.data());
    pack_bits(codes.data() + 192, codes.size() - 192, bits, parts.data() + 3 * bits);
    EXPECT_EQ(parts, whole) << bits;
  }
}

}  // namespace
}  // namespace penstock::kernels::pack_bits_test
