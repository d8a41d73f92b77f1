// Blocks, and the choice from blocks, against plain loops.
#include <methods/block_choice.hpp>
#include <support/sparse_oracle.hpp>
#include <testing/data.hpp>
#include <testing/item.hpp>

namespace penstock::test {
namespace {

using sdk::Block;
using sdk::Blocks;
using sdk::kBlockSide;
using sdk::kBlockSize;

// The block and the position in it of every element of a matrix or, with 0 columns, of runs.
TEST(Blocks, EveryElementLiesInOneBlockAtOnePosition) {
  for (const auto& [rows, cols] : std::vector<std::pair<uint64_t, uint64_t>>{
           {0, 0}, {1, 0}, {4096, 0}, {9001, 0}, {1, 7}, {64, 64}, {65, 63}, {130, 200}, {0, 9}}) {
    const uint64_t n = cols == 0 ? rows : rows * cols;
    const Blocks blocks(n, cols);
    std::vector<uint64_t> filled(blocks.count()), row_of(n);
    for (uint64_t e = 0; e < n; ++e) {
      const uint64_t across = cols == 0 ? 1 : (cols + 63) / 64;
      const uint64_t b = cols == 0 ? e / 4096 : e / cols / 64 * across + e % cols / 64;
      ASSERT_EQ(blocks[b].element(static_cast<uint32_t>(filled[b]++)), e);
    }
    uint64_t in_rows = 0;
    for (uint64_t b = 0; b < blocks.count(); ++b) {
      EXPECT_EQ(blocks[b].size(), filled[b]);
      if (!blocks.begins_row(b)) continue;
      EXPECT_EQ(blocks[b].first, in_rows);
      in_rows += cols == 0 ? filled[b] : blocks[b].rows * cols;
    }
    EXPECT_EQ(in_rows, n);
  }
}

TEST(Blocks, LoadAndStoreMoveTheElementsOfABlock) {
  const std::vector<float> x = heavy_tailed(130 * 200, 1);
  std::vector<float> copy(x.size()), numbers(kBlockSize);
  const Blocks blocks(x.size(), 200);
  for (uint64_t b = 0; b < blocks.count(); ++b) {
    blocks[b].load(x.data(), numbers.data());
    for (uint32_t p = 0; p < blocks[b].size(); ++p) ASSERT_EQ(numbers[p], x[blocks[b].element(p)]);
    blocks[b].store(numbers.data(), copy.data());
  }
  EXPECT_EQ(copy, x);
}

// A part that begins at a multiple of the alignment has the whole gradient's blocks.
TEST(Blocks, PartsHaveTheBlocksOfTheWholeGradient) {
  for (const Shape& shape : {Shape{200, 70}, Shape{9000}, Shape{20, 30, 20}}) {
    penstock_item whole = describe_item(shape, "whole", 0), part = whole;
    const Blocks of_whole{sdk::Item(&whole)};
    part.n_dims = 1;
    part.first = of_whole.alignment();
    part.numel = whole.numel - part.first;
    part.rows = shape.size() == 2 ? part.numel / part.cols : part.numel;
    const Blocks of_part{sdk::Item(&part)};
    const uint64_t before = of_whole.count() - of_part.count();
    EXPECT_EQ(of_whole[before].first, part.first);
    for (uint64_t b = 0; b < of_part.count(); ++b) {
      EXPECT_EQ(of_part[b].first + part.first, of_whole[before + b].first);
      EXPECT_EQ(of_part[b].rows, of_whole[before + b].rows);
      EXPECT_EQ(of_part[b].cols, of_whole[before + b].cols);
    }
  }
}

TEST(Blocks, KeepTheirRoundedShareAndAtLeastOne) {
  const Blocks blocks(4096 + 96, 0);
  EXPECT_EQ(blocks.kept(4096, 64), 64u);
  EXPECT_EQ(blocks.kept(1, 64), 1u);
  EXPECT_EQ(blocks.kept(95, 64), 1u);  // 1.48
  EXPECT_EQ(blocks.kept(96, 64), 2u);  // 1.5
  EXPECT_EQ(blocks.kept(77, 4096), 77u);
  EXPECT_EQ(blocks.kept(64), 66u);
}

TEST(Blocks, OfAVectorAreRunsOf64ThatKeepKEachUnlessTheVectorIsLong) {
  const auto blocks_of = [](const Shape& shape) {
    const penstock_item item = describe_item(shape, "item", 0);
    return Blocks{sdk::Item(&item)};
  };
  for (const Shape& shape : {Shape{200}, Shape{200, 1}}) {
    const Blocks blocks = blocks_of(shape);
    EXPECT_EQ(blocks.count(), 4u);
    EXPECT_EQ(blocks[3].size(), 8u);
    EXPECT_EQ(blocks.kept(32), 3u * 32 + 8);
    EXPECT_EQ(blocks.kept(64), 200u);
  }
  EXPECT_EQ(blocks_of({}).kept(64), 1u);  // a single number
  EXPECT_EQ(blocks_of({65536}).kept(32), 32768u);
  EXPECT_EQ(blocks_of({65537}).kept(32), 16u * 32 + 1);
  EXPECT_EQ(blocks_of({2, 100, 100}).kept(32), 4u * 32 + 28);
  EXPECT_EQ(blocks_of({1, 128}).kept(32), 2u);
}

// Blocks whose scales differ mislead the guess from the block before; ties and zeros do too.
TEST(BlockChoice, EqualsASortWhateverTheBlockBeforeWas) {
  alignas(64) static unsigned char scratch[1 << 18];
  penstock_exec exec = cpu_exec();
  exec.scratch = scratch;
  exec.scratch_bytes = sdk::BlockChoice::scratch_bytes();
  ASSERT_LE(exec.scratch_bytes, sizeof scratch);
  const sdk::Call call{&exec, nullptr, 0, 0};
  sdk::BlockChoice choice(call, 0, sdk::agreed_code_path("select"));
  std::vector<uint16_t> positions(kBlockSize);
  std::vector<float> values(kBlockSize);
  uint64_t seed = 0;
  for (const float scale : {1.0f, 1.0f, 0.7f, 1.5f, 1e-3f, 1e30f, 1e-40f, 0.0f, 1.0f})
    for (const Distribution& distribution : distributions())
      for (const uint64_t n : {uint64_t{1}, uint64_t{100}, kBlockSize}) {
        std::vector<float> x = distribution.draw(n, ++seed);
        for (float& value : x) value *= scale;
        const uint64_t k = Blocks(n, 0).kept(n, seed % 2 == 0 ? 64 : 1000);
        choice.largest({x.data(), kBlockSide}, n, k, positions.data(), values.data());
        const std::vector<uint32_t> expected = largest(x, k);
        for (uint64_t j = 0; j < k; ++j) {
          ASSERT_EQ(positions[j], expected[j]) << distribution.name << ", " << n << ", " << scale;
          ASSERT_EQ(values[j], x[expected[j]]);
        }
      }
}

}  // namespace
}  // namespace penstock::test
