// Sparse moves, and indices that a hostile peer might send.
#include <gtest/gtest.h>
#include <kernels/scatter.hpp>

#include <vector>

namespace penstock::kernels::scatter_test {
namespace {

TEST(Scatter, AddsDuplicatesTwice) {
  const std::vector<uint32_t> indices{1, 3, 3};
  const std::vector<float> values{2, 5, 7};
  std::vector<float> out{1, 1, 1, 1};
  EXPECT_EQ(scatter_add(indices.data(), values.data(), 3, out.data(), 4), 3u);
  EXPECT_EQ(out, (std::vector<float>{1, 3, 1, 13}));
}

TEST(Scatter, AnIndexOutOfRangeChangesNothingAndIsNamed) {
  const std::vector<uint32_t> indices{0, 2, 4, 4294967295u};
  const std::vector<float> values{1, 1, 1, 1};
  std::vector<float> out{9, 9, 9, 9};
  std::vector<float> gathered(4, 3);
  EXPECT_EQ(scatter_add(indices.data(), values.data(), 4, out.data(), 4), 2u);
  EXPECT_EQ(zero_at(indices.data(), 4, out.data(), 4), 2u);
  EXPECT_EQ(gather(out.data(), 4, indices.data(), 4, gathered.data()), 2u);
  EXPECT_EQ(out, (std::vector<float>(4, 9)));
  EXPECT_EQ(gathered, (std::vector<float>(4, 3)));
}

TEST(Scatter, NothingIntoNothingIsFine) {
  EXPECT_EQ(scatter_add(nullptr, nullptr, 0, nullptr, 0), 0u);
  const uint32_t zero = 0;
  EXPECT_EQ(indices_in_range(&zero, 1, 0), 0u);
}

TEST(Scatter, GatherThenZeroThenScatterRestores) {
  std::vector<float> work(1000);
  for (uint64_t i = 0; i < work.size(); ++i) work[i] = static_cast<float>(i) - 500.5f;
  const std::vector<float> before = work;
  std::vector<uint32_t> indices;
  for (uint32_t i = 3; i < 1000; i += 7) indices.push_back(i);
  std::vector<float> values(indices.size());
  EXPECT_EQ(gather(work.data(), 1000, indices.data(), indices.size(), values.data()),
            indices.size());
  EXPECT_EQ(zero_at(indices.data(), indices.size(), work.data(), 1000), indices.size());
  EXPECT_EQ(work[3], 0.0f);
  EXPECT_EQ(work[4], before[4]);
  EXPECT_EQ(scatter_add(indices.data(), values.data(), indices.size(), work.data(), 1000),
            indices.size());
  EXPECT_EQ(work, before);
}

}  // namespace
}  // namespace penstock::kernels::scatter_test
