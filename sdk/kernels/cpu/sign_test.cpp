// Packed signs and the majority vote against counting with integers.
#include <gtest/gtest.h>
#include <kernels/sign.hpp>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace penstock::kernels::sign_test {
namespace {

using Floats = std::vector<float>;

int sign(float value) {
  return (value > 0) - (value < 0);
}

// Values of either sign; about one in `zeros_in` is zero, of either sign (0: none).
Floats draw(uint64_t n, unsigned zeros_in, unsigned seed) {
  std::mt19937 generator(seed);
  Floats values(n);
  for (float& value : values) {
    value = (static_cast<float>(generator() % 1000) + 1) * (generator() % 2 == 0 ? 1e-3f : -1e-3f);
    if (zeros_in != 0 && generator() % zeros_in == 0) value = generator() % 2 == 0 ? 0.0f : -0.0f;
  }
  return values;
}

struct Packed {
  explicit Packed(const Floats& values, CodePath path = widest_code_path())
      : negative(sign_words(values.size()), 0xdead),
        zeros(sign_zero_capacity(values.size())),
        nonzero(sign_words(values.size()), 0xdead) {
    n_zeros =
        pack_signs(values.data(), values.size(), negative.data(), zeros.data(), zeros.size(), path);
    pack_nonzero(values.data(), values.size(), nonzero.data(), path);
  }
  bool listed() const { return n_zeros <= zeros.size(); }
  Signs signs() const {
    return {negative.data(), zeros.data(), listed() ? n_zeros : 0,
            listed() ? nullptr : nonzero.data()};
  }
  std::vector<uint64_t> negative;
  std::vector<uint32_t> zeros;
  std::vector<uint64_t> nonzero;
  uint64_t n_zeros = 0;
};

const std::vector<uint64_t> kSizes = {0, 1, 2, 31, 63, 64, 65, 127, 1000, 2048, 2049, 20011};

TEST(Sign, PacksSignsAndListsZeros) {
  for (const uint64_t n : kSizes)
    for (const unsigned zeros_in : {0u, 100u, 2u, 1u}) {
      const Floats values = draw(n, zeros_in, 1);
      const Packed packed(values);
      uint64_t zeros = 0;
      for (uint64_t i = 0; i < n; ++i) {
        ASSERT_EQ(packed.negative[i / 64] >> (i % 64) & 1, values[i] < 0 ? 1u : 0u) << i;
        ASSERT_EQ(packed.nonzero[i / 64] >> (i % 64) & 1, values[i] != 0 ? 1u : 0u) << i;
        if (values[i] == 0 && zeros++ < packed.zeros.size()) {
          ASSERT_EQ(packed.zeros[zeros - 1], i);
        }
      }
      EXPECT_EQ(packed.n_zeros, zeros);
      if (n % 64 != 0) {
        EXPECT_EQ(packed.negative.back() >> (n % 64), 0u);
        EXPECT_EQ(packed.nonzero.back() >> (n % 64), 0u);
      }
    }
}

TEST(Sign, SubnormalsAndInfinitiesHaveSigns) {
  const float tiny = std::numeric_limits<float>::denorm_min();
  const float endless = std::numeric_limits<float>::infinity();
  Floats values(64, 1.0f);
  values[0] = tiny, values[1] = -tiny, values[2] = endless, values[3] = -endless, values[4] = -0.0f;
  for (const CodePath path : kAllCodePaths) {
    if (!code_path_supported(path)) continue;
    const Packed packed(values, path);
    EXPECT_EQ(packed.negative[0], 0b1010u) << code_path_name(path);
    EXPECT_EQ(packed.n_zeros, 1u);
    EXPECT_EQ(packed.zeros[0], 4u);
  }
}

TEST(Sign, EveryCodePathPacksTheSame) {
  for (const uint64_t n : kSizes)
    for (const unsigned zeros_in : {0u, 50u, 3u}) {
      const Floats values = draw(n, zeros_in, 2);
      const Packed expected(values, CodePath::kPortable);
      for (const CodePath path : kAllCodePaths) {
        if (!code_path_supported(path)) continue;
        const Packed packed(values, path);
        EXPECT_EQ(packed.negative, expected.negative) << code_path_name(path);
        EXPECT_EQ(packed.zeros, expected.zeros) << code_path_name(path);
        EXPECT_EQ(packed.n_zeros, expected.n_zeros) << code_path_name(path);
      }
    }
}

TEST(Sign, AMajorityWinsAndTiesAreZero) {
  for (const uint64_t n : kSizes)
    for (const unsigned voters : {0u, 1u, 2u, 3u, 4u, 7u, 8u, 15u, 16u, 33u})
      for (const unsigned zeros_in : {0u, 60u, 3u}) {
        std::vector<Floats> values;
        std::vector<Packed> packed;
        std::vector<Signs> signs;
        for (unsigned r = 0; r < voters; ++r) {
          // Voters differ in how many zeros they have, so that one vote has both lists and planes.
          values.push_back(draw(n, r % 2 == 0 ? zeros_in : 0, 100 + r));
          packed.emplace_back(values.back());
        }
        for (const Packed& one : packed) signs.push_back(one.signs());
        Floats expected(n);
        for (uint64_t i = 0; i < n; ++i) {
          int sum = 0;
          for (const Floats& of_voter : values) sum += sign(of_voter[i]);
          expected[i] = static_cast<float>(sign(static_cast<float>(sum)));
        }
        for (const CodePath path : kAllCodePaths) {
          if (!code_path_supported(path)) continue;
          Floats out(n, 7.0f);
          majority_vote(signs.data(), signs.size(), n, out.data(), path);
          ASSERT_EQ(out, expected) << n << " elements, voters " << voters << ", one zero in "
                                   << zeros_in << ", " << code_path_name(path);
        }
      }
}

TEST(Sign, BitsBehindTheLastElementAreIgnored) {
  const uint64_t negative = ~uint64_t{0}, nonzero = ~uint64_t{0};
  const Signs signs{&negative, nullptr, 0, &nonzero};
  Floats out(6, 7.0f);
  majority_vote(&signs, 1, 5, out.data(), widest_code_path());
  EXPECT_EQ(out, (Floats{-1, -1, -1, -1, -1, 7}));
}

TEST(Sign, ANegativeBitOfAZeroDoesNotCount) {
  const uint64_t negative = 0b11, nonzero = 0b01;
  const Signs signs{&negative, nullptr, 0, &nonzero};
  Floats out(2);
  majority_vote(&signs, 1, 2, out.data(), widest_code_path());
  EXPECT_EQ(out, (Floats{-1, 0}));
}

TEST(Sign, MajorityPlanesAreTheVoteInBits) {
  const uint64_t n = 5000;
  std::vector<Packed> packed;
  std::vector<Signs> signs;
  for (unsigned r = 0; r < 4; ++r) packed.emplace_back(draw(n, 10, r));
  for (const Packed& one : packed) signs.push_back(one.signs());
  for (const CodePath path : kAllCodePaths) {
    if (!code_path_supported(path)) continue;
    Floats out(n);
    majority_vote(signs.data(), signs.size(), n, out.data(), path);
    std::vector<uint64_t> positive(sign_words(n)), negative(sign_words(n));
    majority_planes(signs.data(), signs.size(), n, positive.data(), negative.data(), path);
    for (uint64_t i = 0; i < n; ++i) {
      ASSERT_EQ(positive[i / 64] >> (i % 64) & 1, out[i] > 0 ? 1u : 0u) << code_path_name(path);
      ASSERT_EQ(negative[i / 64] >> (i % 64) & 1, out[i] < 0 ? 1u : 0u) << code_path_name(path);
    }
  }
}

TEST(Sign, TakingOutSubtractsTheNumberOfTheSign) {
  for (const CodePath path : kAllCodePaths) {
    if (!code_path_supported(path)) continue;
    Floats values = {2.5f, -0.25f, 0.0f, -0.0f, -1.0f};
    take_out_by_sign(values.data(), values.size(), 1.0f, -0.5f, path);
    EXPECT_EQ(values, (Floats{1.5f, 0.25f, 0.0f, 0.0f, -0.5f})) << code_path_name(path);
    for (const uint64_t n : kSizes) {
      const Floats before = draw(n, 5, 4);
      Floats after = before;
      take_out_by_sign(after.data(), n, 0.3f, -0.7f, path);
      for (uint64_t i = 0; i < n; ++i) {
        const float number = before[i] > 0 ? 0.3f : before[i] < 0 ? -0.7f : 0.0f;
        ASSERT_EQ(after[i], before[i] - number) << i;
      }
    }
  }
}

TEST(Sign, SumsBySignAreThoseOfAPlainLoopAndEqualOnEveryCodePath) {
  for (const uint64_t n : kSizes) {
    const Floats values = draw(n, 7, 5);
    double above = 0, below = 0;
    uint64_t n_above = 0, n_below = 0;
    for (const float value : values) {
      (value > 0 ? above : below) += double{value};
      n_above += value > 0;
      n_below += value < 0;
    }
    const SumsBySign expected = sums_by_sign(values.data(), n, CodePath::kPortable);
    EXPECT_NEAR(expected.positive, above, 1e-12 * above);  // 2^-53 per addition
    EXPECT_NEAR(expected.negative, below, -1e-12 * below);
    for (const CodePath path : kAllCodePaths) {
      if (!code_path_supported(path)) continue;
      const SumsBySign sums = sums_by_sign(values.data(), n, path);
      EXPECT_EQ(sums.positive, expected.positive) << code_path_name(path);
      EXPECT_EQ(sums.negative, expected.negative) << code_path_name(path);
      EXPECT_EQ(sums.n_positive, n_above) << code_path_name(path);
      EXPECT_EQ(sums.n_negative, n_below) << code_path_name(path);
    }
  }
}

TEST(Sign, NumbersOfSendersAddUpInOrderRunByRun) {
  for (const uint64_t n : kSizes)
    for (const uint64_t run : {uint64_t{64}, uint64_t{640}, uint64_t{1} << 20})
      for (const unsigned senders : {0u, 1u, 3u}) {
        const uint64_t runs = n / run + 1;
        std::vector<Floats> values, numbers;
        std::vector<Packed> packed;
        for (unsigned r = 0; r < senders; ++r) {
          values.push_back(draw(n, r == 0 ? 0 : r * 40, 9 + r));
          packed.emplace_back(values.back());
          numbers.push_back(draw(2 * runs, 0, 50 + r));
        }
        std::vector<ValuedSigns> valued;
        for (unsigned r = 0; r < senders; ++r)
          valued.push_back({packed[r].signs(), numbers[r].data()});
        for (const bool clear : {true, false})
          for (const CodePath path : kAllCodePaths) {
            if (!code_path_supported(path)) continue;
            Floats out(n, 0.125f);
            sum_valued_signs(valued.data(), senders, n, run, clear, out.data(), path);
            for (uint64_t i = 0; i < n; ++i) {
              float sum = clear ? 0.0f : 0.125f;
              for (unsigned r = 0; r < senders; ++r)
                if (values[r][i] != 0) sum += numbers[r][i / run * 2 + (values[r][i] < 0 ? 1 : 0)];
              ASSERT_EQ(out[i], sum) << i << " of " << n << " on " << code_path_name(path);
            }
          }
      }
}

}  // namespace
}  // namespace penstock::kernels::sign_test
