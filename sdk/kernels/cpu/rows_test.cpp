// Row selection against a full sort of each row, on every code path.
#include <gtest/gtest.h>
#include <kernels/rows.hpp>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <memory>
#include <numeric>
#include <random>
#include <support/workers.hpp>
#include <vector>

namespace penstock::kernels::rows_test {
namespace {

struct Chosen {
  std::vector<uint32_t> indices;
  std::vector<float> values;
  bool operator==(const Chosen&) const = default;
};

Chosen sorted_rows(const std::vector<float>& x, uint64_t rows, uint64_t width, uint64_t k) {
  const auto magnitude = [&](uint32_t i) { return std::isnan(x[i]) ? 0.0f : std::fabs(x[i]); };
  Chosen chosen;
  for (uint64_t row = 0; row < rows; ++row) {
    std::vector<uint32_t> order(width);
    std::iota(order.begin(), order.end(), static_cast<uint32_t>(row * width));
    std::stable_sort(order.begin(), order.end(),
                     [&](uint32_t a, uint32_t b) { return magnitude(a) > magnitude(b); });
    order.resize(k);
    std::sort(order.begin(), order.end());
    chosen.indices.insert(chosen.indices.end(), order.begin(), order.end());
  }
  for (const uint32_t i : chosen.indices) chosen.values.push_back(x[i]);
  return chosen;
}

Chosen selected_rows(const std::vector<float>& x, uint64_t rows, uint64_t width, uint64_t k,
                     const Execution& on) {
  const uint32_t guard = 0xABCDABCDu;
  Chosen chosen{std::vector<uint32_t>(rows * k + 1, guard), std::vector<float>(rows * k + 1, 9e9f)};
  const uint64_t bytes = select_rows_scratch_bytes(width, on.workers.count());
  std::vector<char> scratch(bytes + 64, 0x55);
  void* aligned = scratch.data();
  size_t room = scratch.size();
  std::align(64, room - 64, aligned, room);
  select_rows(x.data(), rows, width, k, chosen.indices.data(), chosen.values.data(),
              {aligned, bytes}, on);
  EXPECT_EQ(chosen.indices.back(), guard);
  EXPECT_EQ(chosen.values.back(), 9e9f);
  chosen.indices.pop_back();
  chosen.values.pop_back();
  return chosen;
}

std::vector<float> drawn(uint64_t n, int kind, uint32_t seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> gauss;
  std::vector<float> x(n);
  for (uint64_t i = 0; i < n; ++i) {
    const float value = gauss(generator);
    switch (kind) {
      case 0:
        x[i] = value * std::exp(gauss(generator));
        break;
      case 1:  // few distinct magnitudes: ties everywhere
        x[i] = std::round(value);
        break;
      case 2:
        x[i] = -0.75f;
        break;
      case 3:  // exact zeros of both signs
        x[i] = i % 17 == 5 ? value : (i % 2 == 0 ? 0.0f : -0.0f);
        break;
      case 4:
        x[i] = i % 7 == 1    ? std::numeric_limits<float>::quiet_NaN()
               : i % 11 == 3 ? -std::numeric_limits<float>::infinity()
                             : value * 1e-40f;  // subnormal
        break;
      default:  // one large entry, the rest ascends
        x[i] = i % 97 == 13 ? 1e30f : static_cast<float>(i) * 1e-3f;
    }
  }
  return x;
}

TEST(Rows, EveryRowEqualsAFullSortOnEveryCodePath) {
  for (const uint64_t width :
       {1, 2, 3, 9, 31, 63, 64, 65, 100, 127, 128, 200, 255, 256, 1000, 4099})
    for (const uint64_t k : {uint64_t{1}, uint64_t{2}, width / 100, width / 20, width / 4,
                             width / 2, width - 1, width})
      for (int kind = 0; kind < 6; ++kind) {
        if (k == 0 || k > width) continue;
        const uint64_t rows = std::clamp<uint64_t>(1500 / width, 2, 40);
        const std::vector<float> x = drawn(rows * width, kind, static_cast<uint32_t>(width + k));
        const Chosen expected = sorted_rows(x, rows, width, k);
        for (const CodePath path : kAllCodePaths) {
          if (!code_path_supported(path)) continue;
          const Chosen found = selected_rows(x, rows, width, k, path);
          ASSERT_EQ(found.indices, expected.indices)
              << width << " wide, k " << k << ", kind " << kind << ", " << code_path_name(path);
          for (uint64_t j = 0; j < found.values.size(); ++j)
            ASSERT_EQ(std::bit_cast<uint32_t>(found.values[j]),
                      std::bit_cast<uint32_t>(expected.values[j]));
        }
      }
}

TEST(Rows, WideRowsAndManyOfThem) {
  for (const auto& [rows, width, k] :
       {std::tuple{3, 70001, 700}, {2, 65536, 6554}, {700, 130, 1}, {1, 40000, 12000}}) {
    const std::vector<float> x = drawn(uint64_t(rows) * uint64_t(width), 0, 7);
    const Chosen expected = sorted_rows(x, uint64_t(rows), uint64_t(width), uint64_t(k));
    for (const CodePath path : kAllCodePaths)
      if (code_path_supported(path)) {
        ASSERT_EQ(selected_rows(x, uint64_t(rows), uint64_t(width), uint64_t(k), path), expected);
      }
  }
}

TEST(Rows, SeveralThreadsChooseTheSame) {
  for (const auto& [rows, width, k] : {std::tuple{5, 70001, 700}, {3001, 64, 2}}) {
    const std::vector<float> x = drawn(uint64_t(rows) * uint64_t(width), 0, 8);
    test::ThreadPerTask three(3);
    EXPECT_EQ(selected_rows(x, uint64_t(rows), uint64_t(width), uint64_t(k),
                            {widest_code_path(), Workers(three.table())}),
              sorted_rows(x, uint64_t(rows), uint64_t(width), uint64_t(k)));
    EXPECT_GE(three.n_tasks(), 2u) << "the work was not shared";
  }
}

TEST(Rows, TiesKeepLowerIndex) {
  const std::vector<float> x{1, -2, 2, 2, 0, 0, 0, 0};
  EXPECT_EQ(selected_rows(x, 2, 4, 2, CodePath::kPortable).indices,
            (std::vector<uint32_t>{1, 2, 4, 5}));
}

TEST(Rows, NoRowsAndNoneWantedWriteNothing) {
  EXPECT_TRUE(selected_rows({}, 0, 5, 2, CodePath::kPortable).indices.empty());
  EXPECT_TRUE(selected_rows({1, 2}, 1, 2, 0, CodePath::kPortable).indices.empty());
}

}  // namespace
}  // namespace penstock::kernels::rows_test
