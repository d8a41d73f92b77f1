// Results that are streamed past the caches, against results in parts that are too small to be
// streamed.
#include <gtest/gtest.h>
#include <kernels/convert.hpp>
#include <kernels/low_rank.hpp>
#include <kernels/sign.hpp>
#include <kernels/stream.hpp>

#include <cstring>
#include <random>
#include <vector>

namespace penstock::kernels::stream_test {
namespace {

using Floats = std::vector<float>;

constexpr uint64_t kLarge = kStreamedBytes / sizeof(float) + 2051;  // whole tiles and a rest
constexpr uint64_t kPart = 64 * 1024;
constexpr float kUntouched = 7.0f;

std::vector<uint64_t> random_words(uint64_t n) {
  std::mt19937_64 generator(3);
  std::vector<uint64_t> words(n);
  for (uint64_t& word : words) word = generator();
  return words;
}

bool same_bits(const Floats& a, const Floats& b) {
  return std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

TEST(Stream, CopiesWhateverTheAlignmentAndTheLength) {
  Floats source(100);
  for (uint64_t i = 0; i < source.size(); ++i) source[i] = static_cast<float>(i);
  for (uint64_t offset = 0; offset < 5; ++offset)
    for (uint64_t count = 0; count < 40; ++count) {
      Floats target(100, kUntouched);
      stream(target.data() + offset, source.data() + 3, count);
      end_stream();
      for (uint64_t i = 0; i < target.size(); ++i) {
        const bool inside = i >= offset && i < offset + count;
        ASSERT_EQ(target[i], inside ? source[i - offset + 3] : kUntouched)
            << i << " of " << count << " from " << offset;
      }
    }
}

TEST(Stream, WidenedValuesAreThoseOfParts) {
  const std::vector<uint64_t> words = random_words(kLarge / 4 + 1);
  const auto* bits = reinterpret_cast<const uint16_t*>(words.data());
  for (const auto widen : {halves_to_floats, bfloat16s_to_floats}) {
    Floats whole(kLarge + 1, kUntouched), parts(kLarge + 1, kUntouched);
    widen(bits, whole.data() + 1, kLarge);  // no multiple of 16 bytes
    for (uint64_t at = 0; at < kLarge; at += kPart)
      widen(bits + at, parts.data() + 1 + at, std::min(kPart, kLarge - at));
    EXPECT_TRUE(same_bits(whole, parts));
  }
}

TEST(Stream, SumsOfSignsAreThoseOfParts) {
  const std::vector<uint64_t> planes = random_words(2 * sign_words(kLarge));
  const float values[2][2] = {{0.5f, -0.25f}, {3.0f, -2.0f}};
  const auto sum = [&](uint64_t first, uint64_t count, float* out) {
    ValuedSigns senders[2];
    for (uint64_t s = 0; s < 2; ++s)
      senders[s] = {{planes.data() + s * sign_words(kLarge) + first / 64, nullptr, 0, nullptr},
                    values[s]};
    sum_valued_signs(senders, 2, count, kLarge + 64 - kLarge % 64, true, out, widest_code_path());
  };
  Floats whole(kLarge + 1, kUntouched), parts(kLarge + 1, kUntouched);
  sum(0, kLarge, whole.data());
  for (uint64_t at = 0; at < kLarge; at += kPart)
    sum(at, std::min(kPart, kLarge - at), parts.data() + at);
  EXPECT_TRUE(same_bits(whole, parts));
}

TEST(Stream, ExpandedFactorsAreThoseOfRows) {
  const low_rank::Shape shape{2051, 2053, 3};
  ASSERT_GE(shape.rows * shape.cols * sizeof(float), kStreamedBytes);
  std::mt19937 generator(4);
  std::normal_distribution<float> normal;
  Floats p(shape.rows * shape.rank), q(shape.cols * shape.rank);
  for (float& value : p) value = normal(generator);
  for (float& value : q) value = normal(generator);
  Floats scratch(low_rank::scratch_floats(shape) + 16);
  const auto misaligned = reinterpret_cast<uintptr_t>(scratch.data()) % 64 / sizeof(float);
  float* const room = scratch.data() + (16 - misaligned) % 16;
  Floats whole(shape.rows * shape.cols), rows(whole.size());
  low_rank::expand(shape, p.data(), q.data(), 0.5f, whole.data(), room, widest_code_path());
  for (uint64_t i = 0; i < shape.rows; ++i)
    low_rank::expand({1, shape.cols, shape.rank}, p.data() + i * shape.rank, q.data(), 0.5f,
                     rows.data() + i * shape.cols, room, widest_code_path());
  EXPECT_TRUE(same_bits(whole, rows));
}

}  // namespace
}  // namespace penstock::kernels::stream_test
