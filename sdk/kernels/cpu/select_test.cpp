// Selection against a full sort, on every code path.
#include <gtest/gtest.h>
#include <kernels/select.hpp>

#include <support/code_paths.hpp>
#include <support/sanitized.hpp>
#include <support/sorted_selection.hpp>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <vector>

namespace penstock::kernels::select_test {
namespace {

using test::first_ascending;
using test::largest_by_sorting;
using test::magnitude;
using test::sorted_order;

struct Selection {
  std::vector<uint32_t> indices;
  std::vector<float> values;
};

// Scratch of `bytes`, with a guard behind it.
class Scratch {
 public:
  explicit Scratch(uint64_t bytes)
      : bytes_(bytes), memory_((bytes + 128) / 8 + 8, 0x5a5a5a5a5a5a5a5a) {}
  SelectScratch get() { return {aligned(), bytes_}; }
  bool intact() {
    const char* end = aligned() + bytes_;
    return std::all_of(end, end + 32, [](char c) { return c == 0x5a; });
  }

 private:
  char* aligned() {
    const auto at = reinterpret_cast<uintptr_t>(memory_.data());
    return reinterpret_cast<char*>((at + 63) / 64 * 64);
  }
  uint64_t bytes_;
  std::vector<uint64_t> memory_;
};

Selection run_largest(const std::vector<float>& x, uint64_t k, CodePath path, uint64_t bytes = 0) {
  if (bytes == 0) bytes = select_scratch_bytes(x.size(), k);
  Scratch scratch(bytes);
  Selection chosen{std::vector<uint32_t>(std::min<uint64_t>(k, x.size())), {}};
  chosen.values.resize(chosen.indices.size());
  select_largest(x.data(), x.size(), k, chosen.indices.data(), chosen.values.data(), scratch.get(),
                 path);
  EXPECT_TRUE(scratch.intact());
  return chosen;
}

struct Input {
  std::string name;
  std::vector<float> x;
};

std::vector<Input> inputs(uint64_t n) {
  std::mt19937_64 random(n + 1);
  std::normal_distribution<double> gauss;
  std::vector<Input> all;
  const auto add = [&](const char* name, auto&& value) {
    std::vector<float> x(n);
    for (uint64_t i = 0; i < n; ++i) x[i] = static_cast<float>(value(i));
    all.push_back({name, std::move(x)});
  };
  add("gauss", [&](uint64_t) { return gauss(random); });
  add("heavy", [&](uint64_t) { return gauss(random) * std::exp(2 * gauss(random)); });
  add("constant", [&](uint64_t) { return -2.5; });
  add("zero", [&](uint64_t i) { return i % 2 == 0 ? 0.0 : -0.0; });
  add("sparse", [&](uint64_t) { return random() % 50 == 0 ? gauss(random) : 0.0; });
  add("few values", [&](uint64_t) { return static_cast<double>(random() % 4) - 2; });
  add("ascending", [&](uint64_t i) { return static_cast<double>(i); });
  add("descending", [&](uint64_t i) { return -static_cast<double>(n - i); });
  add("subnormal", [&](uint64_t) { return gauss(random) * 1e-41; });
  add("one spike", [&](uint64_t i) { return i == n / 2 ? 1e30 : 1e-30 * gauss(random); });
  add("large period", [&](uint64_t i) { return i % 4096 == 0 ? 100.0 : gauss(random); });
  add("crowd at the end", [&](uint64_t i) { return i > n - n / 20 ? 5 + gauss(random) : 0.001; });
  add("not finite", [&](uint64_t) {
    const uint64_t kind = random() % 100;
    if (kind == 0) return std::numeric_limits<double>::quiet_NaN();
    if (kind == 1) return -std::numeric_limits<double>::infinity();
    return gauss(random);
  });
  return all;
}

TEST(Select, EqualsAFullSortOnEveryCodePath) {
  for (const uint64_t n : {0, 1, 2, 3, 31, 63, 64, 65, 1000, 16384, 16385, 65537, 100003}) {
    if (test::kSanitized && n > 16385) break;
    for (const Input& input : inputs(n)) {
      const std::vector<uint32_t> order = sorted_order(input.x);
      for (const double density : {0.0, 0.0001, 0.001, 0.01, 0.1, 0.5, 0.999, 1.0}) {
        const auto k = static_cast<uint64_t>(std::ceil(density * static_cast<double>(n)));
        const std::vector<uint32_t> expected = first_ascending(order, k);
        for (const CodePath path : test::supported_paths()) {
          SCOPED_TRACE(input.name + ", n " + std::to_string(n) + ", k " + std::to_string(k) + ", " +
                       std::string(code_path_name(path)));
          const Selection chosen = run_largest(input.x, k, path);
          ASSERT_EQ(chosen.indices, expected);
          for (uint64_t j = 0; j < k; ++j)
            ASSERT_EQ(0, std::memcmp(&chosen.values[j], &input.x[expected[j]], sizeof(float)));
        }
      }
    }
  }
}

TEST(Select, NeedsNoMoreThanTheFixedScratch) {
  for (const Input& input : inputs(50000)) {
    const std::vector<uint32_t> expected = largest_by_sorting(input.x, 700);
    for (const uint64_t bytes :
         {kSelectFixedBytes, kSelectFixedBytes + 4096, kSelectFixedBytes + 40000})
      ASSERT_EQ(run_largest(input.x, 700, test::supported_paths().back(), bytes).indices, expected)
          << input.name;
  }
}

TEST(Select, TiesKeepLowerIndex) {
  EXPECT_EQ(run_largest({3, -3, 3, -3, 1}, 2, CodePath::kPortable).indices,
            (std::vector<uint32_t>{0, 1}));
  EXPECT_EQ(run_largest({0, 5, 0, 0}, 3, CodePath::kPortable).indices,
            (std::vector<uint32_t>{0, 1, 2}));
}

TEST(Select, TakingZeroesWhatWasChosenAndNothingElse) {
  std::vector<float> work = inputs(70000)[1].x;
  const std::vector<float> before = work;
  std::vector<uint32_t> indices(321);
  std::vector<float> values(321);
  Scratch scratch(select_scratch_bytes(work.size(), 321));
  take_largest(work.data(), work.size(), 321, indices.data(), values.data(), scratch.get(),
               select_code_path(""));
  std::vector<float> rebuilt = work;
  for (uint64_t j = 0; j < indices.size(); ++j) {
    EXPECT_EQ(work[indices[j]], 0.0f);
    rebuilt[indices[j]] = values[j];
  }
  EXPECT_EQ(rebuilt, before);
  EXPECT_EQ(indices, largest_by_sorting(before, 321));
}

TEST(Select, SegmentsCompeteAsOneArray) {
  for (const Input& input : inputs(90001)) {
    const std::vector<uint32_t> order = sorted_order(input.x);
    for (const uint64_t k : {1, 100, 901, 60000}) {
      const std::vector<uint64_t> sizes{0, 1, 40000, 0, 17, 49983, 0};
      std::vector<SelectSegment> segments;
      std::vector<std::vector<uint32_t>> indices;
      std::vector<std::vector<float>> values;
      uint64_t begin = 0;
      uint64_t bytes = 0;
      for (const uint64_t size : sizes) {
        indices.emplace_back(size);
        values.emplace_back(size);
        segments.push_back(
            {input.x.data() + begin, size, indices.back().data(), values.back().data(), 99});
        begin += size;
        bytes += select_scratch_bytes(size, (k * size + 90000) / 90001);
      }
      ASSERT_EQ(begin, input.x.size());
      Scratch scratch(bytes);
      select_largest(segments, k, scratch.get(), select_code_path(""));
      EXPECT_TRUE(scratch.intact());
      std::vector<uint32_t> found;
      begin = 0;
      for (uint64_t s = 0; s < sizes.size(); ++s) {
        for (uint64_t j = 0; j < segments[s].count; ++j) {
          found.push_back(static_cast<uint32_t>(begin + indices[s][j]));
          EXPECT_EQ(0, std::memcmp(&values[s][j], &input.x[found.back()], sizeof(float)));
        }
        begin += sizes[s];
      }
      ASSERT_EQ(found, first_ascending(order, k)) << input.name << ", k " << k;
    }
  }
}

TEST(Select, AboveTakesAllThatPassOrTheLargest) {
  for (const uint64_t n : {0, 1, 2, 31, 1000, 30001})
    for (const Input& input : inputs(n)) {
      const std::vector<uint32_t> order = sorted_order(input.x);
      for (const float threshold : {0.0f, -1.0f, 1e-42f, 0.5f, 2.0f, 1e9f}) {
        std::vector<uint32_t> passing;
        for (uint64_t i = 0; i < n; ++i)
          if (magnitude(input.x[i]) >= threshold && magnitude(input.x[i]) > 0)
            passing.push_back(static_cast<uint32_t>(i));
        for (const uint64_t capacity : {uint64_t{0}, uint64_t{1}, n / 10, n}) {
          const std::vector<uint32_t> expected =
              passing.size() > capacity ? first_ascending(order, capacity) : passing;
          for (const CodePath path : test::supported_paths()) {
            std::vector<uint32_t> indices(capacity);
            std::vector<float> values(capacity);
            Scratch scratch(select_scratch_bytes(n, capacity));
            indices.resize(select_above(input.x.data(), n, threshold, capacity, indices.data(),
                                        values.data(), scratch.get(), path));
            EXPECT_TRUE(scratch.intact());
            ASSERT_EQ(indices, expected) << input.name << ", n " << n << ", threshold " << threshold
                                         << ", capacity " << capacity;
          }
        }
      }
    }
}

TEST(Select, TakingAboveZeroesWhatItTookAndNothingElse) {
  for (const uint64_t n : {0, 1, 1000, 30001})
    for (const Input& input : inputs(n))
      for (const uint64_t capacity : {uint64_t{1}, n / 10, n})
        for (const CodePath path : test::supported_paths()) {
          std::vector<uint32_t> indices(capacity), without_values(capacity);
          std::vector<float> values(capacity), work = input.x;
          Scratch scratch(select_scratch_bytes(n, capacity));
          without_values.resize(select_above(work.data(), n, 0.5f, capacity, without_values.data(),
                                             nullptr, scratch.get(), path));
          indices.resize(take_above(work.data(), n, 0.5f, capacity, indices.data(), values.data(),
                                    scratch.get(), path));
          ASSERT_EQ(indices, without_values);
          std::vector<float> expected = input.x;
          for (uint64_t j = 0; j < indices.size(); ++j) {
            ASSERT_EQ(values[j], input.x[indices[j]]);
            expected[indices[j]] = 0;
          }
          for (uint64_t i = 0; i < n; ++i)  // NaN is not equal to itself
            ASSERT_TRUE(work[i] == expected[i] || expected[i] != expected[i]) << input.name;
        }
}

TEST(Select, AboveNaNTakesNothing) {
  const std::vector<float> x{1, 2, 3};
  uint32_t indices[3];
  float values[3];
  Scratch scratch(select_scratch_bytes(3, 3));
  EXPECT_EQ(select_above(x.data(), 3, std::nanf(""), 3, indices, values, scratch.get(),
                         CodePath::kPortable),
            0u);
}

TEST(Select, KthMagnitudeEqualsTheSortedOne) {
  for (const uint64_t n : {1, 2, 77, 5000})
    for (const Input& input : inputs(n)) {
      std::vector<double> sorted;
      for (const float value : input.x) sorted.push_back(magnitude(value));
      std::sort(sorted.rbegin(), sorted.rend());
      std::vector<uint32_t> keys(n);
      Scratch scratch(kSelectFixedBytes);
      for (const uint64_t k : {uint64_t{1}, (n + 1) / 2, n})
        EXPECT_EQ(kth_magnitude(input.x.data(), n, 1, k, keys.data(), scratch.get()), sorted[k - 1])
            << input.name;
    }
}

TEST(Select, KthMagnitudeOfAStridedSample) {
  const std::vector<float> x{9, 1, 9, -4, 9, 2, 9, 3};
  uint32_t keys[4];
  Scratch scratch(kSelectFixedBytes);
  EXPECT_EQ(kth_magnitude(x.data() + 1, 4, 2, 2, keys, scratch.get()), 3.0f);
}

TEST(Select, ANamedCodePathIsTakenWhereItRuns) {
  EXPECT_EQ(select_code_path("portable"), CodePath::kPortable);
  EXPECT_TRUE(code_path_supported(select_code_path("")));
  EXPECT_EQ(select_code_path("no such path"), select_code_path(""));
}

}  // namespace
}  // namespace penstock::kernels::select_test
