// Reductions of every dtype against plain loops in wider arithmetic.
#include <gtest/gtest.h>
#include <penstock/collective.h>
#include <kernels/convert.hpp>
#include <kernels/reduce.hpp>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

namespace penstock::kernels::reduce_test {
namespace {

const std::vector<uint64_t> kCounts{0, 1, 7, 2048, 2049, 10'001};  // a tile has 2048 elements

template <typename T>
T plain(uint32_t reduction, T a, T b) {
  switch (reduction) {
    case PENSTOCK_REDUCE_SUM:
      return a + b;
    case PENSTOCK_REDUCE_PRODUCT:
      return a * b;
    case PENSTOCK_REDUCE_MIN:
      return std::min(a, b);
    default:
      return std::max(a, b);
  }
}

// T: the element; W: the type in which the oracle computes before it narrows to T after every step.
template <typename T, typename W>
void check_dtype(uint32_t dtype) {
  std::mt19937_64 random(11);
  for (uint32_t reduction = PENSTOCK_REDUCE_SUM; reduction <= PENSTOCK_REDUCE_PRODUCT; ++reduction)
    for (uint64_t count : kCounts)
      for (uint64_t n_sources : {1, 2, 3, 8}) {
        std::vector<std::vector<T>> sources(n_sources, std::vector<T>(count));
        for (auto& source : sources)
          for (T& element : source)
            element = static_cast<T>(static_cast<int64_t>(random() % 2001) - 1000) / T(3);
        std::vector<T> expected = sources[0];
        for (uint64_t s = 1; s < n_sources; ++s)
          for (uint64_t i = 0; i < count; ++i)
            expected[i] = static_cast<T>(plain<W>(reduction, expected[i], sources[s][i]));
        std::vector<const void*> pointers;
        for (auto& source : sources) pointers.push_back(source.data());
        std::vector<T>& target = sources[n_sources / 2];  // in place over a source
        ASSERT_TRUE(
            reduce_in_order(dtype, reduction, pointers.data(), n_sources, target.data(), count));
        ASSERT_EQ(target, n_sources > 1 ? expected : sources[0]) << dtype << " op " << reduction;
      }
}

TEST(Reduce, EveryPlainTypeMatchesThePlainLoop) {
  check_dtype<float, float>(PENSTOCK_FLOAT32);
  check_dtype<double, double>(PENSTOCK_FLOAT64);
  check_dtype<int8_t, int64_t>(PENSTOCK_INT8);
  check_dtype<uint8_t, int64_t>(PENSTOCK_UINT8);
  check_dtype<int16_t, int64_t>(PENSTOCK_INT16);
  check_dtype<uint16_t, int64_t>(PENSTOCK_UINT16);
  check_dtype<int32_t, int64_t>(PENSTOCK_INT32);
  check_dtype<uint32_t, uint64_t>(PENSTOCK_UINT32);
  check_dtype<int64_t, __int128>(PENSTOCK_INT64);
  check_dtype<uint64_t, unsigned __int128>(PENSTOCK_UINT64);
}

template <typename Load, typename Store>
void check_16_bit(uint32_t dtype, Load load, Store store) {
  std::mt19937 random(5);
  std::normal_distribution<float> normal;
  for (uint64_t count : kCounts) {
    std::vector<std::vector<uint16_t>> sources(5, std::vector<uint16_t>(count));
    for (auto& source : sources)
      for (auto& element : source) element = store(normal(random) * 100);
    std::vector<const void*> pointers;
    for (auto& source : sources) pointers.push_back(source.data());
    std::vector<uint16_t> target(count);
    ASSERT_TRUE(
        reduce_in_order(dtype, PENSTOCK_REDUCE_SUM, pointers.data(), 5, target.data(), count));
    for (uint64_t i = 0; i < count; ++i) {
      float sum = load(sources[0][i]);
      for (int s = 1; s < 5; ++s) sum += load(sources[s][i]);
      ASSERT_EQ(target[i], store(sum)) << "rounded once, at the end";
    }
  }
}

TEST(Reduce, SixteenBitFloatsAreAddedInFloat32AndRoundedOnce) {
  check_16_bit(PENSTOCK_FLOAT16, half_to_float, float_to_half);
  check_16_bit(PENSTOCK_BFLOAT16, bfloat16_to_float, float_to_bfloat16);
}

// The mean in float64, rounded once; sums of a few such numbers are exact there and in float32.
template <typename Load, typename Store>
void check_mean(uint32_t dtype, Load load, Store store) {
  std::mt19937 random(7);
  for (const uint64_t count : kCounts)
    for (const uint64_t n_sources : {1, 2, 3, 4, 7}) {
      std::vector<std::vector<uint16_t>> sources(n_sources, std::vector<uint16_t>(count));
      for (uint64_t i = 0; i < count; ++i) {
        const float scale = i % 3 == 0 ? 0x1p15f : i % 3 == 1 ? 1.0f : 0x1p-20f;
        for (auto& source : sources)
          source[i] = store(scale * (1.0f + static_cast<float>(random() % 256) / 256));
      }
      std::vector<const void*> pointers;
      for (auto& source : sources) pointers.push_back(source.data());
      std::vector<uint16_t> target(count);
      ASSERT_TRUE(reduce_in_order(dtype, PENSTOCK_REDUCE_MEAN, pointers.data(), n_sources,
                                  target.data(), count));
      for (uint64_t i = 0; i < count; ++i) {
        double sum = 0;
        for (const auto& source : sources) sum += load(source[i]);
        const double mean = sum / static_cast<double>(n_sources);
        ASSERT_EQ(target[i], store(static_cast<float>(mean))) << "mean " << mean;
      }
    }
}

TEST(Reduce, AMeanOfSixteenBitFloatsIsDividedBeforeItIsRounded) {
  check_mean(PENSTOCK_FLOAT16, half_to_float, float_to_half);
  check_mean(PENSTOCK_BFLOAT16, bfloat16_to_float, float_to_bfloat16);
  const std::vector<uint16_t> large{float_to_half(40000), float_to_half(65504)};
  const std::vector<const void*> sources(4, large.data());
  std::vector<uint16_t> target(2);
  ASSERT_TRUE(
      reduce_in_order(PENSTOCK_FLOAT16, PENSTOCK_REDUCE_MEAN, sources.data(), 4, target.data(), 2));
  EXPECT_EQ(target, large);
}

TEST(Reduce, OnlyOfSixteenBitFloatsIsThereAMean) {
  double element = 1;
  const void* sources[] = {&element, &element};
  for (uint32_t dtype = PENSTOCK_FLOAT32; dtype <= PENSTOCK_BOOL; ++dtype) {
    const bool is_known = (mean_dtypes() & PENSTOCK_DTYPE_BIT(dtype)) != 0;
    EXPECT_EQ(reduce_in_order(dtype, PENSTOCK_REDUCE_MEAN, sources, 2, &element, 1), is_known);
  }
}

TEST(Reduce, BooleansAreJoinedLogically) {
  const std::vector<uint8_t> a{0, 0, 1, 1, 2}, b{0, 1, 0, 1, 0};
  const void* sources[] = {a.data(), b.data()};
  std::vector<uint8_t> target(5);
  for (uint32_t reduction : {PENSTOCK_REDUCE_SUM, PENSTOCK_REDUCE_MAX}) {
    ASSERT_TRUE(reduce_in_order(PENSTOCK_BOOL, reduction, sources, 2, target.data(), 5));
    EXPECT_EQ(target, (std::vector<uint8_t>{0, 1, 1, 1, 1}));
  }
  for (uint32_t reduction : {PENSTOCK_REDUCE_PRODUCT, PENSTOCK_REDUCE_MIN}) {
    ASSERT_TRUE(reduce_in_order(PENSTOCK_BOOL, reduction, sources, 2, target.data(), 5));
    EXPECT_EQ(target, (std::vector<uint8_t>{0, 0, 0, 1, 0}));
  }
}

TEST(Reduce, ANanWinsWhereverItStands) {
  const float nan = std::nanf("");
  const std::vector<float> a{nan, 1, 1}, b{1, nan, 1}, c{1, 1, nan};
  const void* sources[] = {a.data(), b.data(), c.data()};
  std::vector<float> target(3);
  for (uint32_t reduction = PENSTOCK_REDUCE_SUM; reduction <= PENSTOCK_REDUCE_PRODUCT;
       ++reduction) {
    ASSERT_TRUE(reduce_in_order(PENSTOCK_FLOAT32, reduction, sources, 3, target.data(), 3));
    for (float element : target) EXPECT_TRUE(std::isnan(element)) << "op " << reduction;
  }
}

TEST(Reduce, ARangeLeavesTheRestAlone) {
  const std::vector<int32_t> a{1, 2, 3, 4}, b{10, 20, 30, 40};
  const void* sources[] = {a.data(), b.data()};
  std::vector<int32_t> target(4, -1);
  ASSERT_TRUE(
      reduce_in_order(PENSTOCK_INT32, PENSTOCK_REDUCE_SUM, sources, 2, target.data(), 2, 1));
  EXPECT_EQ(target, (std::vector<int32_t>{-1, 22, 33, -1}));
}

TEST(Reduce, UnknownTypesAndReductionsAreRefused) {
  float element = 1;
  const void* sources[] = {&element};
  EXPECT_FALSE(reduce_in_order(99, PENSTOCK_REDUCE_SUM, sources, 1, &element, 1));
  EXPECT_FALSE(reduce_in_order(PENSTOCK_FLOAT32, 0, sources, 1, &element, 1));
  EXPECT_FALSE(reduce_in_order(PENSTOCK_FLOAT32, PENSTOCK_REDUCE_SUM, sources, 0, &element, 1));
  for (uint32_t dtype = PENSTOCK_FLOAT32; dtype <= PENSTOCK_BOOL; ++dtype)
    EXPECT_TRUE(reducible_dtypes() & PENSTOCK_DTYPE_BIT(dtype));
}

}  // namespace
}  // namespace penstock::kernels::reduce_test
