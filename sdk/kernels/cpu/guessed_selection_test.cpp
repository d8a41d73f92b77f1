// The selection by a guess against a full sort, on every code path.
#include <gtest/gtest.h>
#include <kernels/guessed_selection.hpp>
#include <support/code_paths.hpp>
#include <support/sorted_selection.hpp>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <random>
#include <vector>

namespace penstock::kernels::guessed_selection_test {
namespace {

using Floats = std::vector<float>;
using test::largest_by_sorting;
using test::magnitude;

std::vector<Floats> inputs(uint64_t n) {
  std::mt19937_64 random(n);
  std::normal_distribution<float> gauss;
  std::vector<Floats> all;
  const auto add = [&](const std::function<float(uint64_t)>& value) {
    Floats x(n);
    for (uint64_t i = 0; i < n; ++i) x[i] = value(i);
    all.push_back(x);
  };
  add([&](uint64_t) { return gauss(random); });
  add([&](uint64_t) { return gauss(random) * 1e-41f; });  // subnormal
  add([&](uint64_t) { return 2.5f; });
  add([&](uint64_t) { return static_cast<float>(random() % 4); });  // ties and zeros
  add([&](uint64_t i) { return static_cast<float>(i); });
  add([&](uint64_t) {
    return random() % 9 == 0   ? std::numeric_limits<float>::quiet_NaN()
           : random() % 9 == 0 ? -std::numeric_limits<float>::infinity()
                               : gauss(random);
  });
  return all;
}

// The runs of x, `stride` floats apart, with values between them that no selection may see.
Floats spread(const Floats& x, uint64_t stride) {
  Floats runs((x.size() + 63) / 64 * stride, 1e30f);
  for (uint64_t i = 0; i < x.size(); ++i) runs[i / 64 * stride + i % 64] = x[i];
  return runs;
}

void expect_equal(const GuessedSelection& found, const Floats& x,
                  const std::vector<uint32_t>& expected, float guess) {
  ASSERT_NE(found.indices, nullptr) << guess;
  uint64_t above = 0;
  for (const float value : x) above += magnitude(value) > found.reached;
  EXPECT_LE(above, expected.size());
  for (uint64_t j = 0; j < expected.size(); ++j) {
    ASSERT_EQ(found.indices[j], expected[j]) << j << ", guess " << guess;
    EXPECT_EQ(0, std::memcmp(&found.bits[j], &x[expected[j]], sizeof(float)));
    EXPECT_GE(magnitude(x[expected[j]]), found.reached);
  }
}

TEST(GuessedSelection, EqualsASortOrFails) {
  constexpr uint64_t kMost = 600;
  std::vector<uint64_t> scratch(guessed_scratch_bytes(kMost) / 8 + 1);
  for (const auto& [n, stride] : {std::pair{1, 64}, {100, 64}, {640, 64}, {640, 64 * 3}, {64, 80}})
    for (const Floats& x : inputs(static_cast<uint64_t>(n)))
      for (const uint64_t k : {1, 5, 60}) {
        if (k > x.size()) continue;
        const std::vector<uint32_t> expected = largest_by_sorting(x, k);
        float smallest = std::numeric_limits<float>::infinity();
        for (const uint32_t at : expected)
          smallest = std::min(smallest, static_cast<float>(magnitude(x[at])));
        const Floats runs = spread(x, static_cast<uint64_t>(stride));
        for (const float share : {0.0f, 0.5f, 0.95f, 1.0f, 1.1f}) {
          const float guess = share * smallest;
          const float lowest = std::max(guess, std::numeric_limits<float>::denorm_min());
          uint64_t reach = 0;
          for (const float value : x) reach += magnitude(value) >= lowest;
          for (const CodePath path : test::supported_paths()) {
            const GuessedSelection found =
                select_by_guess(runs.data(), x.size(), static_cast<uint64_t>(stride), k, guess,
                                kMost, {scratch.data(), scratch.size() * 8}, path);
            if (reach < k || reach > kMost || std::isnan(guess))
              EXPECT_EQ(found.indices, nullptr);
            else
              expect_equal(found, x, expected, guess);
          }
        }
      }
}

}  // namespace
}  // namespace penstock::kernels::guessed_selection_test
