// DeMo against cosine sums and sorts in double, and its rules: what leaves work is what the payload
// stands for, and the result is a sign.
#include <map>
#include <support/quantised.hpp>
#include <support/sparse_oracle.hpp>

namespace penstock::test {
namespace {

using Numbers = std::vector<double>;

const std::vector<Shape> kShapes{{100, 70}, {0},     {1},      {31},       {4200},
                                 {3, 5, 7}, {67, 1}, {1, 130}, {3, 35, 40}};
const std::vector<uint64_t> kNumels{7000, 0, 1, 31, 4200, 105, 67, 130, 4200};

LoadedPlugin demo() {
  return load_plugin(PENSTOCK_PLUGIN_FILE);
}
LoadedPlugin residual() {
  return load_plugin("memory", "residual");
}

// F[k][j] of n cosines.
double cosine(uint64_t n, uint64_t k, uint64_t j) {
  const double scale = std::sqrt((k == 0 ? 1.0 : 2.0) / static_cast<double>(n));
  return scale * std::cos(M_PI * static_cast<double>((2 * j + 1) * k) / static_cast<double>(2 * n));
}

// All of them, for n up to 64: [n][k * n + j].
const std::vector<Numbers>& cosines() {
  static const std::vector<Numbers> all = [] {
    std::vector<Numbers> tables(65);
    for (uint64_t n = 1; n <= 64; ++n)
      for (uint64_t i = 0; i < n * n; ++i) tables[n].push_back(cosine(n, i / n, i % n));
    return tables;
  }();
  return all;
}

// The elements first, first + step, ... of x become their cosine coefficients, or come back.
void along(Numbers& x, uint64_t first, uint64_t n, uint64_t step, bool back) {
  const Numbers& table = cosines()[n];
  Numbers result(n);
  for (uint64_t to = 0; to < n; ++to)
    for (uint64_t from = 0; from < n; ++from)
      result[to] += table[back ? from * n + to : to * n + from] * x[first + from * step];
  for (uint64_t i = 0; i < n; ++i) x[first + i * step] = result[i];
}

// The places of a block's elements, row by row, and how the block is transformed.
struct OracleBlock {
  std::vector<uint64_t> places;
  uint64_t rows = 1, cols = 0;  // one row: it is cut into rows of 64

  void transform(Numbers& x, bool back) const {
    for (uint64_t at = 0; at < x.size(); at += rows == 1 ? 64 : cols)
      along(x, at, rows == 1 ? std::min<uint64_t>(64, x.size() - at) : cols, 1, back);
    if (rows == 1) return;
    for (uint64_t col = 0; col < cols; ++col) along(x, col, rows, cols, back);
  }
};

// Biases and the like, of which runs of 64 send k coefficients each; none here is long.
bool is_vector(const Shape& shape) {
  return shape.size() < 2 || (shape.size() == 2 && shape[1] == 1);
}

std::vector<OracleBlock> blocks_of(const Shape& shape) {
  const uint64_t n = numel_of(shape);
  const bool matrix = shape.size() == 2 && shape[1] > 1;
  const uint64_t width = matrix ? static_cast<uint64_t>(shape[1]) : 1;
  const uint64_t run = is_vector(shape) ? 64 : 4096;
  std::map<std::pair<uint64_t, uint64_t>, OracleBlock> blocks;
  for (uint64_t e = 0; e < n; ++e) {
    OracleBlock& block = matrix ? blocks[{e / width / 64, e % width / 64}] : blocks[{e / run, 0}];
    block.places.push_back(e);
  }
  std::vector<OracleBlock> all;
  for (auto& [at, block] : blocks) {
    block.cols = matrix ? std::min<uint64_t>(64, width - at.second * 64) : block.places.size();
    block.rows = block.places.size() / block.cols;
    all.push_back(block);
  }
  return all;
}

// x of every rank loses what is sent of it; returns the mean over senders, before the sign.
Numbers step_of(std::vector<Numbers>& x, const Shape& shape, uint64_t k) {
  Numbers mean(x[0].size());
  for (const OracleBlock& block : blocks_of(shape)) {
    const uint64_t n = block.places.size();
    const uint64_t count =
        is_vector(shape) ? std::min(n, k) : std::max<uint64_t>(1, (n * k + 2048) / 4096);
    Numbers sum(n), senders(n);
    for (Numbers& of_rank : x) {
      Numbers numbers;
      for (const uint64_t e : block.places) numbers.push_back(of_rank[e]);
      block.transform(numbers, false);
      std::vector<uint64_t> order(n);
      for (uint64_t i = 0; i < n; ++i) order[i] = i;
      std::stable_sort(order.begin(), order.end(), [&](uint64_t a, uint64_t b) {
        return std::fabs(numbers[a]) > std::fabs(numbers[b]);
      });
      Numbers sent(n);
      for (uint64_t i = 0; i < count; ++i) {
        sent[order[i]] = numbers[order[i]];
        sum[order[i]] += numbers[order[i]];
        senders[order[i]] += 1;
      }
      block.transform(sent, true);
      for (uint64_t i = 0; i < n; ++i) of_rank[block.places[i]] -= sent[i];
    }
    for (uint64_t i = 0; i < n; ++i) sum[i] /= std::max(1.0, senders[i]);
    block.transform(sum, true);
    for (uint64_t i = 0; i < n; ++i) mean[block.places[i]] = sum[i];
  }
  return mean;
}

// Gaussian numbers have no ties that single precision could decide otherwise.
std::vector<float> gauss(uint64_t n, uint64_t seed) {
  return distributions()[0].draw(n, seed);
}

TEST(Demo, TheMeanAndWhatIsKeptEqualTheDefinition) {
  for (const uint32_t ranks : {1u, 2u, 3u, 4u, 8u}) {
    CompressorRig rig({.ranks = ranks, .check_mass = true, .mass_tolerance = 2e-7}, kShapes, demo(),
                      {{"sign", false}}, residual());
    std::vector<std::vector<Numbers>> kept;  // [item][rank]
    for (const uint64_t numel : kNumels) kept.emplace_back(ranks, Numbers(numel));
    for (uint64_t step = 0; step < 2; ++step) {
      const RankTensors gradients = draw_gradients(gauss, ranks, kNumels, step);
      const Tensors mean = rig.step(gradients);
      for (uint64_t i = 0; i < kNumels.size(); ++i) {
        for (uint32_t r = 0; r < ranks; ++r)
          for (uint64_t e = 0; e < kNumels[i]; ++e) kept[i][r][e] += gradients[r][i][e];
        const Numbers expected = step_of(kept[i], kShapes[i], 32);
        // Sums of 64 products of floats, twice; values are about 1.
        for (uint64_t e = 0; e < kNumels[i]; ++e) {
          ASSERT_NEAR(mean[i][e], expected[e], 1e-5) << "item " << i << ", element " << e;
          ASSERT_NEAR(rig.work(ranks - 1, i)[e], kept[i][ranks - 1][e], 1e-5) << "item " << i;
        }
      }
    }
  }
}

TEST(Demo, TheResultIsTheSignOfThatMean) {
  for (const double scale : {1.0, 1024.0}) {
    CompressorRig means({.ranks = 3}, kShapes, demo(), {{"sign", false}}, residual());
    CompressorRig signs({.ranks = 3}, kShapes, demo(), {}, residual());
    CompressorRig without_memory({.ranks = 3}, kShapes, demo(), {});
    const RankTensors gradients = draw_gradients(heavy_tailed, 3, kNumels, 4);
    const Tensors mean = means.step(gradients, {.grad_scale = scale});
    const Tensors sign = signs.step(gradients, {.grad_scale = scale});
    EXPECT_EQ(without_memory.step(gradients, {.grad_scale = scale}), sign);
    for (uint64_t i = 0; i < kNumels.size(); ++i) {
      for (uint64_t e = 0; e < kNumels[i]; ++e)
        ASSERT_EQ(sign[i][e], mean[i][e] > 0 ? 1 : mean[i][e] < 0 ? -1 : 0);
      for (uint32_t r = 0; r < 3; ++r) EXPECT_EQ(signs.work(r, i), means.work(r, i));
    }
  }
}

TEST(Demo, AnOverflowInTheTransformIsNoZero) {
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    CompressorRig rig({.ranks = 1}, {{24, 16}}, demo(), {}, residual());
    std::vector<float> huge = gauss(24 * 16, seed);
    for (float& value : huge) value = std::copysign(3e38f, value);
    const Tensors result = rig.step({{huge}});
    for (const float value : result[0]) ASSERT_NE(value, 0) << seed;
  }
}

TEST(Demo, EveryCoefficientTogetherIsTheDenseMean) {
  CompressorRig rig({.ranks = 2}, kShapes, demo(), {{"k", 4096}, {"sign", false}}, residual());
  const RankTensors gradients = draw_gradients(gauss, 2, kNumels, 9);
  const Tensors mean = rig.step(gradients);
  for (uint64_t i = 0; i < kNumels.size(); ++i)
    for (uint64_t e = 0; e < kNumels[i]; ++e) {
      ASSERT_NEAR(mean[i][e], (gradients[0][i][e] + gradients[1][i][e]) / 2, 1e-5);
      ASSERT_NEAR(rig.work(0, i)[e], 0, 1e-5);
    }
}

TEST(Demo, GradientsAreWhatWasSentPlusWhatIsKept) {
  for (const char* type : {"fp32", "fp16", "int2", "sign2"}) {
    const std::vector<Shape> shapes{{70, 66}, {1}, {200}};
    const std::vector<uint64_t> numels{4620, 1, 200};
    CompressorRig rig({.ranks = 2, .check_mass = true, .mass_tolerance = 2e-6}, shapes, demo(),
                      {{"value_type", type}}, residual());
    std::vector<Numbers> owed;
    for (const uint64_t numel : numels) owed.emplace_back(numel);
    for (uint64_t step = 0; step < 20; ++step) {
      const RankTensors gradients = draw_gradients(heavy_tailed, 2, numels, step);
      StepSettings how;
      if (step % 5 == 3) how.void_rank = 1;  // rank 0 gets back what it sent
      rig.step(gradients, how);
      for (uint64_t i = 0; i < numels.size(); ++i)
        for (uint64_t e = 0; e < numels[i]; ++e)
          owed[i][e] += gradients[0][i][e] - (how.void_rank ? 0 : rig.sent(0, i)[e]);
    }
    for (uint64_t i = 0; i < numels.size(); ++i)
      for (uint64_t e = 0; e < numels[i]; ++e)  // heavy tails: the largest is about 1000
        ASSERT_NEAR(rig.work(0, i)[e], owed[i][e], 2e-3) << type << ", item " << i;
  }
}

TEST(Demo, CompensatingInTheSameCallChangesNoBit) {
  expect_folding_changes_no_bit(demo(), {}, {{66, 5}, {0}, {70}}, 2e-7);
}

TEST(Demo, EveryCodePathSendsTheSame) {
  expect_one_result_wherever_it_runs(demo(), {}, {{200, 300}, {5003}});
}

TEST(Demo, AnyBytesAreSurvivedOrRefused) {
  for (const char* type : {"fp32", "fp16", "int2", "sign2"}) {
    CompressorRig rig({.ranks = 1}, {{65, 7}}, demo(), {{"value_type", type}});
    expect_any_bytes_are_survived(rig);
  }
}

}  // namespace
}  // namespace penstock::test
