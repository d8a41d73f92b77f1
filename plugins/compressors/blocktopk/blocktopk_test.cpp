// Block top-k against sorts of each block in plain loops, with every form of its values; and
// payloads that no Penstock rank would send.
#include <cfloat>
#include <map>
#include <support/half.hpp>
#include <support/quantised.hpp>
#include <support/sparse_oracle.hpp>

namespace penstock::test {
namespace {

const std::vector<Shape> kShapes{{100, 150}, {0},    {1},      {31},        {7, 3, 3},
                                 {70, 1},    {9000}, {3, 200}, {3, 50, 60}, {65537}};
const std::vector<uint64_t> kNumels{15000, 0, 1, 31, 63, 70, 9000, 600, 9000, 65537};
const std::vector<std::string> kTypes{"fp32", "fp16", "int2", "sign2"};

LoadedPlugin blocktopk() {
  return load_plugin(PENSTOCK_PLUGIN_FILE);
}
LoadedPlugin residual() {
  return load_plugin("memory", "residual");
}

// Biases and the like, of which runs of 64 send k elements each.
bool is_short_vector(const Shape& shape) {
  return numel_of(shape) <= 65536 && (shape.size() < 2 || (shape.size() == 2 && shape[1] == 1));
}

// The elements of each block, row by row; blocks in their order.
std::vector<std::vector<uint64_t>> blocks_of(const Shape& shape) {
  std::vector<std::vector<uint64_t>> blocks;
  const uint64_t n = numel_of(shape);
  if (shape.size() != 2 || shape[1] == 1) {
    const uint64_t run = is_short_vector(shape) ? 64 : 4096;
    for (uint64_t e = 0; e < n; ++e) {
      if (e % run == 0) blocks.emplace_back();
      blocks.back().push_back(e);
    }
    return blocks;
  }
  const auto rows = static_cast<uint64_t>(shape[0]), cols = static_cast<uint64_t>(shape[1]);
  std::map<std::pair<uint64_t, uint64_t>, std::vector<uint64_t>> of;
  for (uint64_t row = 0; row < rows; ++row)
    for (uint64_t col = 0; col < cols; ++col) of[{row / 64, col / 64}].push_back(row * cols + col);
  for (auto& [at, elements] : of) blocks.push_back(elements);
  return blocks;
}

uint64_t kept_of_block(const Shape& shape, uint64_t size, uint64_t k) {
  if (is_short_vector(shape)) return std::min(size, k);
  const auto rounded = static_cast<uint64_t>(
      std::floor(static_cast<double>(size) * static_cast<double>(k) / 4096 + 0.5));
  return std::max<uint64_t>(1, rounded);
}

double unit_for(const std::vector<float>& values) {
  double largest = 0;
  for (const float value : values) largest = std::max(largest, std::fabs(double{value}));
  if (largest == 0) return 1;
  int exponent = -126;
  while (exponent < 96 && largest >= std::ldexp(65536.0, exponent)) ++exponent;
  return std::ldexp(1.0, exponent);
}

// Multiples of float16 numbers.
std::vector<float> halves(std::vector<float> values, double unit) {
  for (float& value : values) {
    const float code = from_float16(to_float16(static_cast<float>(value / unit)));
    value = static_cast<float>((std::isinf(code) ? std::copysign(65504.0f, code) : code) * unit);
  }
  return values;
}

// The formulas of SparseLoCo's quantiser, over all values of a gradient.
std::vector<float> four_numbers(const std::vector<float>& values) {
  const auto m = static_cast<double>(values.size());
  double s = 0, squares = 0;
  for (const float v : values) s += v;
  s /= m;
  for (const float v : values) squares += (v - s) * (v - s);
  double delta = m > 1 ? 6 * std::sqrt(squares / (m - 1)) / 4 : 0;
  if (delta == 0) delta = 1;
  std::vector<int> z;
  for (const float v : values)
    z.push_back(std::clamp(static_cast<int>(std::nearbyint((v - s) / delta + 2)), 0, 3));
  std::vector<float> sent;
  for (size_t j = 0; j < values.size(); ++j) {
    double sum = 0, count = 0;
    for (size_t i = 0; i < values.size(); ++i)
      if (z[i] == z[j]) sum += values[i] - s, ++count;
    sent.push_back(static_cast<float>(s + sum / count));
  }
  return sent;
}

// Within a block: the mean of the magnitudes up to their mean, and the mean of the others.
std::vector<float> two_magnitudes(const std::vector<float>& values, double unit) {
  double mean = 0;
  for (const float v : values) mean += std::fabs(v);
  mean /= static_cast<double>(values.size());
  std::vector<float> sent;
  for (const float v : values) {
    double sum = 0, count = 0;
    for (const float other : values)
      if ((std::fabs(other) > mean) == (std::fabs(v) > mean)) sum += std::fabs(other), ++count;
    const float magnitude = halves({static_cast<float>(sum / count)}, unit)[0];
    sent.push_back(v < 0 ? -magnitude : magnitude);
  }
  return sent;
}

std::vector<float> as_sent(const std::string& type, const std::vector<std::vector<float>>& blocks) {
  std::vector<float> all, sent;
  for (const auto& block : blocks) all.insert(all.end(), block.begin(), block.end());
  if (type == "fp16") return halves(all, unit_for(all));
  if (type == "int2") return four_numbers(all);
  if (type == "fp32") return all;
  for (const auto& block : blocks)
    for (const float value : two_magnitudes(block, unit_for(all))) sent.push_back(value);
  return sent;
}

SentOracle largest_of_blocks(const std::vector<Shape>& shapes, uint64_t k,
                             const std::string& type) {
  return [=](const std::vector<float>& x, const Sender& sender) {
    std::vector<uint64_t> places;
    std::vector<std::vector<float>> chosen;
    for (const auto& block : blocks_of(shapes[sender.item])) {
      std::vector<float> values;
      for (const uint64_t e : block) values.push_back(x[e]);
      std::vector<float>& of_block = chosen.emplace_back();
      for (const uint32_t position :
           largest(values, kept_of_block(shapes[sender.item], values.size(), k))) {
        places.push_back(block[position]);
        of_block.push_back(values[position]);
      }
    }
    std::vector<float> sent(x.size());
    const std::vector<float> values = as_sent(type, chosen);
    for (size_t j = 0; j < places.size(); ++j) sent[places[j]] = values[j];
    return sent;
  };
}

void expect_equals_blocks(const std::string& type, int k, uint32_t ranks, uint64_t steps,
                          const Distribution& distribution) {
  // What a code stands for is subtracted from work with a rounding: 2^-24 of the larger.
  const bool rounds = type == "int2" || type == "sign2";
  expect_equals({.plugin = blocktopk(),
                 .options = {{"k", k}, {"value_type", type.c_str()}},
                 .shapes = kShapes,
                 .rig = {.ranks = ranks,
                         .ranks_per_slice = ranks / 2,
                         .check_mass = true,
                         .mass_tolerance = rounds ? 2e-7 : 0},
                 .steps = steps},
                largest_of_blocks(kShapes, static_cast<uint64_t>(k), type), distribution);
}

TEST(BlockTopK, EveryValueTypeEqualsTheOracleOnEveryDistribution) {
  for (const std::string& type : kTypes)
    for (const Distribution& distribution : distributions())
      expect_equals_blocks(type, 64, 2, 2, distribution);
}

TEST(BlockTopK, EveryWorldEqualsTheOracle) {
  for (const std::string& type : kTypes)
    for (const uint32_t ranks : {1u, 2u, 3u, 4u, 8u})
      expect_equals_blocks(type, 200, ranks, 2, {"heavy_tailed", heavy_tailed});
}

TEST(BlockTopK, AMatrixOfManyBlocksWithTiesAndZerosEqualsTheOracle) {
  // The second result is so large that it is written past the caches.
  const std::vector<Shape> shapes{{777, 1031}, {2064, 2064}};
  expect_large_gradients_equal(
      {.plugin = blocktopk(), .options = {{"value_type", "fp32"}}, .shapes = shapes},
      largest_of_blocks(shapes, 64, "fp32"));
}

TEST(BlockTopK, EveryElementInFloat32IsTheDenseMean) {
  for (const uint32_t ranks : {1u, 2u, 3u, 4u, 8u}) {
    CompressorRig rig({.ranks = ranks}, kShapes, blocktopk(), {{"k", 4096}, {"value_type", "fp32"}},
                      residual());
    const RankTensors gradients = draw_gradients(heavy_tailed, ranks, kNumels, 1);
    const Tensors mean = rig.step(gradients);
    for (uint64_t i = 0; i < kNumels.size(); ++i)
      for (uint64_t e = 0; e < kNumels[i]; ++e) {
        float sum = 0;
        for (const Tensors& of_rank : gradients) sum += of_rank[i][e];
        ASSERT_EQ(mean[i][e], sum / static_cast<float>(ranks));
        ASSERT_EQ(rig.work(0, i)[e], 0);
      }
  }
}

TEST(BlockTopK, NothingIsLostOver100StepsOfEveryKind) {
  uint32_t turn = 0;
  for (const Distribution& distribution : distributions()) {
    const std::string& type = kTypes[turn % 4];
    CompressorRig rig({.ranks = turn++ % 3 + 1, .check_mass = true, .mass_tolerance = 2e-6},
                      {{10, 20}, {0}, {1}, {31}, {70, 66}}, blocktopk(),
                      {{"k", 200}, {"value_type", type.c_str()}}, residual());
    expect_conservation(rig, distribution, 100, KeptSize::kByLargest);
  }
}

TEST(BlockTopK, AMeanOverSendersDividesByTheirNumber) {
  CompressorRig rig({.ranks = 3}, {{2, 2}}, blocktopk(),
                    {{"k", 2048}, {"value_type", "fp32"}, {"mean", "senders"}}, residual());
  // The two largest of each rank.
  EXPECT_EQ(rig.step({{{4, -3, 1, 0}}, {{2, 1, 6, 0}}, {{1, -9, 7, 0}}}),
            (Tensors{{3, -6, 6.5, 0}}));
  EXPECT_EQ(rig.work(0, 0), (std::vector<float>{0, 0, 1, 0}));
}

TEST(BlockTopK, PartialBlocksSendTheirShareAndAtLeastOneAndVectorsSendAll) {
  const std::vector<std::pair<Shape, uint64_t>> expected{
      {{0}, 0},        {{1}, 1},           {{67}, 67},      {{4097}, 4097}, {{67, 1}, 67},
      {{65537}, 1025}, {{67, 1, 1}, 1},    {{97, 1, 1}, 2}, {{64, 64}, 64}, {{65, 64}, 65},
      {{65, 65}, 67},  {{2, 64, 64}, 128}, {{1, 67}, 2}};
  for (const auto& [shape, entries] : expected) {
    CompressorRig rig({.ranks = 1}, {shape}, blocktopk());
    EXPECT_EQ(rig.need(0).rounds[0].sections[0].capacity, entries) << text_of(shape);
  }
}

TEST(BlockTopK, SendsAsManyBytesAsItSays) {
  const std::map<std::string, uint64_t> expected{
      {"fp32", 512}, {"fp16", 388}, {"int2", 288}, {"sign2", 280}};
  for (const auto& [type, bytes] : expected) {
    CompressorRig rig({.ranks = 1}, {{64, 64}}, blocktopk(), {{"value_type", type.c_str()}});
    uint64_t sent = 0;
    for (const penstock_section_bound& section : rig.need(0).rounds[0].sections)
      sent += section.capacity * sdk::dtype_bytes(section.dtype);
    EXPECT_EQ(sent, bytes) << type;
  }
}

TEST(BlockTopK, IsCutBetweenRowsOfBlocks) {
  CompressorRig rig({.ranks = 1}, {{100, 150}, {5000}, {4, 4, 500}, {70, 1}}, blocktopk());
  EXPECT_EQ(rig.need(0).part_alignment, 64u * 150);
  for (const uint64_t item : {1, 3}) EXPECT_EQ(rig.need(item).part_alignment, 64u);
  EXPECT_EQ(rig.need(2).part_alignment, 4096u);
}

// The unit of float16 values follows the gradient, so neither overflows nor vanishes.
TEST(BlockTopK, TinyAndHugeGradientsArrive) {
  for (const std::string type : {"fp16", "sign2"})
    for (const float size : {1e-30f, 1e30f}) {
      CompressorRig rig({.ranks = 1}, {{2}}, blocktopk(),
                        {{"k", 4096}, {"value_type", type.c_str()}}, residual());
      rig.step({{{size, -3 * size}}});
      EXPECT_NEAR(rig.sent(0, 0)[0] / size, 1, 1e-3) << type;
      EXPECT_NEAR(rig.sent(0, 0)[1] / size, -3, 3e-3) << type;
    }
}

TEST(BlockTopK, TheLargestFloatIsSentInPartAndKeptInPart) {
  // 2^-24: what is kept is rounded.
  CompressorRig rig({.ranks = 2, .check_mass = true, .mass_tolerance = 0x1p-24}, {{1}}, blocktopk(),
                    {}, residual());
  rig.step({{{FLT_MAX}}, {{0}}});
  EXPECT_EQ(rig.sent(0, 0)[0], std::ldexp(65504.0f, 96));
  EXPECT_EQ(rig.work(0, 0)[0], FLT_MAX - std::ldexp(65504.0f, 96));
}

TEST(BlockTopK, EqualAndSingleValuesAreSentExactlyAsFourNumbers) {
  for (const int64_t n : {1, 4096}) {
    CompressorRig rig({.ranks = 1}, {{n}}, blocktopk(), {{"value_type", "int2"}}, residual());
    const std::vector<float> x(static_cast<size_t>(n), -0.3f);
    rig.step({{x}});
    for (uint64_t e = 0; e < (n == 1 ? 1u : 64u); ++e) EXPECT_EQ(rig.sent(0, 0)[e], -0.3f);
  }
}

// One step for the whole gradient is far too coarse for blocks of small values.
TEST(BlockTopK, TwoMagnitudesOfEachBlockServeBlocksOfUnlikeScale) {
  std::vector<float> x = heavy_tailed(2 * 4096, 5);
  for (uint64_t e = 4096; e < x.size(); ++e) x[e] *= 1e-3f;
  std::map<std::string, double> error;
  for (const std::string type : {"int2", "sign2"}) {
    CompressorRig rig({.ranks = 1}, {{2, 64, 64}}, blocktopk(), {{"value_type", type.c_str()}},
                      residual());
    rig.step({{x}});
    double lost = 0, sent = 0;
    for (uint64_t e = 4096; e < x.size(); ++e) {
      if (rig.sent(0, 0)[e] == 0) continue;
      lost += std::pow(double{x[e]} - rig.sent(0, 0)[e], 2);
      sent += std::pow(double{x[e]}, 2);
    }
    error[type] = lost / sent;
  }
  EXPECT_LT(error["sign2"], 0.3);
  EXPECT_GT(error["int2"], 0.9);
}

TEST(BlockTopK, CompensatingInTheSameCallChangesNoBit) {
  expect_folding_changes_no_bit(blocktopk(), {}, {{70, 66}, {0}, {4100}, {1, 50}});
}

// From 1 MiB on work is written past the caches; more than 1024 columns are two strips.
TEST(BlockTopK, CompensatingLargeGradientsInTheSameCallChangesNoBit) {
  const std::vector<Shape> shapes{{260, 1100}, {270001}};
  for (const uint32_t form : {PENSTOCK_FORM_AFFINE, PENSTOCK_FORM_NESTEROV}) {
    RigSettings settings{.ranks = 1, .keep = true, .form = form};
    CompressorRig two_sweeps(settings, shapes, blocktopk());
    settings.fold = settings.fold_reads_before = true;
    CompressorRig one_sweep(settings, shapes, blocktopk());
    for (uint64_t step = 0; step < 2; ++step) {
      const RankTensors gradients = draw_gradients(heavy_tailed, 1, {260 * 1100, 270001}, step);
      EXPECT_EQ(two_sweeps.step(gradients), one_sweep.step(gradients));
      for (uint64_t i = 0; i < shapes.size(); ++i)
        EXPECT_TRUE(std::ranges::equal(two_sweeps.work(0, i), one_sweep.work(0, i)));
    }
  }
}

TEST(BlockTopK, EveryCodePathSendsTheSame) {
  expect_one_result_wherever_it_runs(blocktopk(), {}, {{200, 300}, {140003}});
}

TEST(BlockTopK, HugeGradientsAreRefused) {
  expect_huge_gradients_are_refused(blocktopk());
}

TEST(BlockTopK, PayloadsThatCannotBeAreRefusedByRankAndGradient) {
  for (const std::string& type : kTypes) {
    CompressorRig rig({.ranks = 1}, {{65, 70}}, blocktopk(), {{"value_type", type.c_str()}});
    const std::vector<float> x = heavy_tailed(65 * 70, 1);
    const auto refused = [&](const std::function<void(OwnedPayload&)>& change, const char* why) {
      expect_refused(rig, x, change, why);
    };
    const uint64_t last = type == "fp32" ? 1 : type == "sign2" ? 3 : 2;
    refused([](OwnedPayload& p) { p.section(0).count -= 1; }, "elements in section 0");
    refused([&](OwnedPayload& p) { p.section(last).count -= 1; },
            ("elements in section " + std::to_string(last)).c_str());
    refused([&](OwnedPayload& p) { entry<uint32_t>(p, last, 0) = entry<uint32_t>(p, last, 1); },
            "to 4095: positions ascend");
    // The last block has one row of 6.
    refused([&](OwnedPayload& p) { entry<uint32_t>(p, last, p.section(last).count - 1) = 65 * 70; },
            "expected one from 4544 to 4549");
    if (type == "fp16" || type == "sign2") {
      const uint64_t section = last - 1;
      for (const float unit : {0.0f, -1.0f, 3.0f, INFINITY, NAN, 0x1p97f, 0x1p-127f})
        refused([&](OwnedPayload& p) { entry<float>(p, section, 0) = unit; }, "has a unit of");
    }
    if (type == "sign2")
      for (const uint16_t half : {0x7c00, 0x8001, 0x7e00})
        refused([&](OwnedPayload& p) { entry<uint16_t>(p, 1, 3) = half; },
                "magnitude 1 of block 1");
    expect_any_bytes_are_survived(rig);
  }
}

}  // namespace
}  // namespace penstock::test
