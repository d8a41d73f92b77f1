// Compares coded positions with a reader that works bit by bit, and their sizes with counts.
#include <gtest/gtest.h>
#include <wire/plain_testing.hpp>
#include <wire/positions.hpp>

#include <cmath>

namespace penstock::wire::positions_test {
namespace {

using kernels::CodePath;
using test::Bytes;
using test::Drawn;
using test::Numbers;

std::vector<CodePath> code_paths() {
  std::vector<CodePath> paths;
  for (const CodePath path : kernels::kAllCodePaths)
    if (kernels::code_path_supported(path)) paths.push_back(path);
  return paths;
}

template <typename Position>
std::vector<Position> as(const Numbers& positions) {
  return {positions.begin(), positions.end()};
}

template <typename Position>
Bytes written(const Drawn& drawn, CodePath path, Codings allowed = kEveryCoding) {
  const std::vector<Position> positions = as<Position>(drawn.positions);
  const std::span<const Position> span(positions);
  const PositionsPlan plan = plan_positions(span, drawn.n, path, allowed);
  Bytes bytes(plan.bytes() + 1, 0xa5);
  write_positions(plan, span, drawn.n, bytes.data(), path);
  EXPECT_EQ(bytes.back(), 0xa5) << drawn.name << ": more bytes than were planned";
  bytes.pop_back();
  return bytes;
}

template <typename Position>
std::string read(const Bytes& bytes, uint64_t n, uint64_t slice, CodePath path, Numbers& found) {
  PositionsReader<Position> reader(path);
  std::string refused = reader.open(bytes, n);
  while (refused.empty() && reader.left() > 0) {
    std::vector<Position> part(std::min(slice, reader.left()));
    refused = reader.take(part);
    found.insert(found.end(), part.begin(), part.end());
  }
  return refused;
}

template <typename Position>
void check(const Drawn& drawn) {
  for (Codings coding = 0; coding < kPositionCodings; ++coding) {
    const Bytes bytes = written<Position>(drawn, CodePath::kPortable, 1u << coding);
    EXPECT_LE(bytes.size(), positions_bound(drawn.n, drawn.positions.size())) << drawn.name;
    ASSERT_EQ(test::plain_positions(bytes, drawn.n), drawn.positions)
        << drawn.name << ", coding " << coding;
    for (const CodePath path : code_paths()) {
      ASSERT_EQ(written<Position>(drawn, path, 1u << coding), bytes)
          << drawn.name << ", coding " << coding << ", " << kernels::code_path_name(path);
      for (const uint64_t slice : {kSlice, 3 * kSlice, drawn.positions.size() + 1}) {
        Numbers found;
        ASSERT_EQ(read<Position>(bytes, drawn.n, slice, path, found), "") << drawn.name;
        ASSERT_EQ(found, drawn.positions)
            << drawn.name << ", coding " << coding << ", " << kernels::code_path_name(path);
      }
    }
  }
}

TEST(Positions, ComeBackInEveryCodingOnEveryCodePath) {
  for (const Drawn& drawn : test::drawn_positions()) check<uint32_t>(drawn);
}

TEST(Positions, OfSixtyFourBitsAreTheSameBytesAsOfThirtyTwo) {
  for (const Drawn& drawn : test::drawn_positions()) {
    check<uint64_t>(drawn);
    EXPECT_EQ(written<uint64_t>(drawn, CodePath::kPortable),
              written<uint32_t>(drawn, CodePath::kPortable))
        << drawn.name;
  }
}

TEST(Positions, BeyondThirtyTwoBitsComeBack) {
  for (const Drawn& drawn : test::far_positions()) check<uint64_t>(drawn);
}

TEST(Positions, LieInBytesAsThePageSays) {
  const Drawn drawn{"the page's", 1000, {3, 17, 20, 999}};
  const auto path = kernels::widest_code_path();
  EXPECT_EQ(written<uint32_t>(drawn, path, 1u << kRaw),
            (Bytes{0, 0, 0, 4, 16, 3, 0, 0, 0, 17, 0, 0, 0, 20, 0, 0, 0, 0xe7, 3, 0, 0}));
  EXPECT_EQ(written<uint32_t>(drawn, path, 1u << kBlocks),
            (Bytes{1, 0, 0, 4, 8, 3, 0, 17, 0, 20, 0, 0xe7, 3}));
  // Gaps 3, 13, 2, 978 with parameter 8: remainders 3, 13, 2, 210; quotients 0, 0, 0, 3.
  EXPECT_EQ(written<uint32_t>(drawn, path, 1u << kRice),
            (Bytes{2, 8, 0, 4, 5, 3, 13, 2, 210, 0b1000111}));
}

TEST(Positions, WithParameterZeroAreABitmap) {
  penstock::test::Random random(8);
  const Drawn drawn = test::random_positions(70001, 40000, random);
  const Bytes bytes = written<uint32_t>(drawn, kernels::widest_code_path());
  ASSERT_EQ(bytes[0], kRice);
  ASSERT_EQ(bytes[1], 0);
  Bytes bitmap(drawn.positions.back() / 8 + 1);
  for (const uint64_t position : drawn.positions)
    bitmap[position / 8] |= static_cast<unsigned char>(1u << position % 8);
  EXPECT_EQ(Bytes(bytes.end() - static_cast<ptrdiff_t>(bitmap.size()), bytes.end()), bitmap);
}

uint64_t rice_bits(const Numbers& positions, unsigned parameter) {
  uint64_t bits = 0, lowest = 0;
  for (const uint64_t position : positions) {
    bits += ((position - lowest) >> parameter) + 1 + parameter;
    lowest = position + 1;
  }
  return bits;
}

// Gaps of two sizes, so that the mean says little about the parameter.
std::vector<Drawn> of_two_gaps() {
  std::vector<Drawn> all;
  for (unsigned bits = 0; bits < 22; ++bits)
    for (const uint64_t share : {1, 2, 5, 50}) {
      Drawn drawn{"gaps of " + std::to_string(bits) + " bits", uint64_t{1} << 32, {}};
      for (uint64_t next = 0; drawn.positions.size() < 300; ++next) {
        if (drawn.positions.size() % share == 0) next += (uint64_t{1} << bits) - 1;
        drawn.positions.push_back(next);
      }
      all.push_back(drawn);
    }
  return all;
}

TEST(Positions, HaveTheParameterWithTheFewestBits) {
  std::vector<Drawn> all = test::drawn_positions();
  for (const Drawn& drawn : of_two_gaps()) all.push_back(drawn);
  for (const Drawn& drawn : all) {
    if (drawn.positions.empty()) continue;
    const std::vector<uint32_t> positions = as<uint32_t>(drawn.positions);
    const Fit fit = Rice<uint32_t>::fit(positions, drawn.n, kernels::widest_code_path());
    uint64_t least = kNever;
    for (unsigned parameter = 0; parameter <= 31; ++parameter)
      least = std::min(least, rice_bits(drawn.positions, parameter));
    EXPECT_LE(fit.length, (least + 7) / 8 + 1) << drawn.name;  // each part ends in a whole byte
  }
}

TEST(Positions, TravelInTheShortestCodingThatIsAllowed) {
  for (const Drawn& drawn : test::drawn_positions()) {
    const auto path = kernels::widest_code_path();
    uint64_t least = kNever;
    for (unsigned coding = 0; coding < kPositionCodings; ++coding)
      least = std::min<uint64_t>(least, written<uint32_t>(drawn, path, 1u << coding).size());
    EXPECT_EQ(written<uint32_t>(drawn, path).size(), least) << drawn.name;
    EXPECT_LE(written<uint32_t>(drawn, path, 1u << kBlocks).size(),
              written<uint32_t>(drawn, path, 1u << kRaw).size());
  }
}

TEST(Positions, TravelInTheFirstOfCodingsOfTheSameLength) {
  const Drawn drawn{"two in two blocks", 65537, {5, 65536}};  // 8 bytes raw, and 4 + 4 in blocks
  EXPECT_EQ(written<uint32_t>(drawn, CodePath::kPortable, 1u << kBlocks)[0], kRaw);
}

double entropy_bits(double n, double count) {
  const auto log2_factorial = [](double x) { return std::lgamma(x + 1) / std::log(2.0); };
  return log2_factorial(n) - log2_factorial(count) - log2_factorial(n - count);
}

TEST(Positions, TakeAtMostThreePercentMoreThanTheirEntropy) {
  penstock::test::Random random(9);
  for (const double density : {0.001, 0.01, 0.1}) {
    const uint64_t n = 3000000;
    const auto count = static_cast<uint64_t>(density * static_cast<double>(n));
    const Drawn drawn = test::random_positions(n, count, random);
    const auto bits =
        8.0 * static_cast<double>(written<uint32_t>(drawn, kernels::widest_code_path()).size());
    EXPECT_LE(bits, 1.03 * entropy_bits(static_cast<double>(n), static_cast<double>(count)))
        << density;
  }
}

TEST(Positions, ThatDoNotAscendAreWrittenWithinTheirPlanAndRefused) {
  penstock::test::Random random(10);
  for (const uint64_t count : {2, 100, 700, 5000}) {
    Drawn drawn{"anything", 100000, {}};
    for (uint64_t i = 0; i < count; ++i)
      drawn.positions.push_back(static_cast<uint32_t>(random.bits()));
    for (const CodePath path : code_paths())
      for (const Codings allowed : {kEveryCoding, 1u << kBlocks, 1u << kRice}) {
        Numbers found;
        EXPECT_NE(
            read<uint32_t>(written<uint32_t>(drawn, path, allowed), drawn.n, kSlice, path, found),
            "");
      }
  }
}

struct Wrong {
  Bytes bytes;
  std::string says;
};

TEST(Positions, OfWrongSectionsAreRefusedWithASentence) {
  const std::vector<Wrong> all{
      {{}, "has 0 bytes, its header alone takes more"},
      {{0, 0, 0, 0x80, 0}, "has a header in which a number does not end where it should"},
      {{0, 0, 0, 1, 4, 9, 0, 0}, "claims 4 bytes, of which 3 are there"},
      {{3, 0, 0, 1, 1, 0}, "is of the unknown coding 3, expected one below 3"},
      {{0, 0, 0, 101, 0}, "claims 101 positions below 100"},
      {{2, 1, 0, 0, 0}, "has no positions and yet a coding or bytes"},
      {{2, 0, 0, 9, 1, 0xff}, "claims 9 positions in 1 bytes"},
      {{0, 0, 0, 1, 2, 0, 0}, "has 2 bytes with parameter 0 for 1 positions of 4 bytes"},
      {{0, 0, 0, 2, 8, 7, 0, 0, 0, 7, 0, 0, 0},
       "has the position 7, expected ascending ones below 100"},
      {{0, 0, 0, 1, 4, 100, 0, 0, 0}, "has the position 100, expected ascending ones below 100"},
      {{1, 0, 0, 1, 3, 0, 0, 0}, "has 3 bytes with parameter 0 for 1 positions in 1 blocks"},
      {{1, 0, 0, 2, 4, 7, 0, 6, 0},
       "has offsets in block 0 that do not ascend, or leave 100 elements"},
      {{2, 32, 0, 1, 1, 1}, "has the parameter 32, expected 0 to 31"},
      {{2, 0, 0, 1, 2, 1, 0}, "has 2 bytes that end in 0 for 1 positions with 0 bits and a one"},
      {{2, 3, 0, 1, 5, 0, 0, 0, 0, 1},
       "has 25 bits in unary for 1 positions below 100 with parameter 3"},
      {{2, 0, 0, 2, 1, 2}, "has fewer ones than positions, which are 2"},
      {{2, 0, 0, 1, 1, 3}, "has more ones than positions, which are 1"},
      {{2, 5, 0, 1, 2, 31, 8}, "has the position 127, expected one below 100"},
  };
  for (const Wrong& wrong : all) {
    Numbers found;
    EXPECT_EQ(read<uint32_t>(wrong.bytes, 100, kSlice, kernels::widest_code_path(), found),
              wrong.says);
    EXPECT_FALSE(test::plain_positions(wrong.bytes, 100)) << wrong.says;
  }
  Numbers found;
  EXPECT_EQ(
      read<uint32_t>({0, 0, 0, 0, 0}, (uint64_t{1} << 32) + 1, kSlice, CodePath::kPortable, found),
      "has positions below 4294967297, which 32 bits do not hold; read it with uint64_t");
  uint64_t count = 0;
  EXPECT_EQ(read_positions<uint32_t>(Bytes{2, 0, 0, 2, 1, 3}, 100, {}, count, CodePath::kPortable),
            "has 2 positions, at most 0 are legal");
}

TEST(Positions, OfASectionAreReadWhateverFollowsIt) {
  Bytes bytes = written<uint32_t>({"some", 100, {3, 50}}, CodePath::kPortable);
  const uint64_t size = bytes.size();
  bytes.insert(bytes.end(), 9, 0xff);
  PositionsReader<uint32_t> reader(CodePath::kPortable);
  ASSERT_EQ(reader.open(bytes, 100), "");
  EXPECT_EQ(reader.bytes(), size);
  std::vector<uint32_t> found(2);
  ASSERT_EQ(reader.take(found), "");
  EXPECT_EQ(found, (std::vector<uint32_t>{3, 50}));
}

// Positions in a row; then random positions, whose sections are compared with the expected size.
TEST(Positions, DrawnAtRandomTakeTheBytesThatAreExpected) {
  EXPECT_EQ(expected_positions_bytes(1000, 0), 5u);
  EXPECT_EQ(expected_positions_bytes(64, 64), 5u + 8);
  for (const uint64_t n : {20'000u, 1'000'003u, 30'000'000u})
    for (const double density : {0.001, 0.01, 0.1, 0.5, 0.9}) {
      const auto count = static_cast<uint64_t>(static_cast<double>(n) * density);
      if (count < 200 || count > 1'000'000) continue;
      std::vector<uint32_t> positions;
      uint64_t state = 1;
      for (uint64_t p = 0; p < n; ++p) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        const auto left = static_cast<double>(n - p);
        const double drawn = static_cast<double>(state >> 11) * 0x1p-53;
        if (drawn * left < static_cast<double>(count - positions.size()))
          positions.push_back(static_cast<uint32_t>(p));
      }
      ASSERT_EQ(positions.size(), count);
      const auto took = static_cast<double>(
          plan_positions(std::span<const uint32_t>(positions), n, kernels::widest_code_path())
              .bytes());
      // The size of a section with few positions depends on chance.
      EXPECT_NEAR(static_cast<double>(expected_positions_bytes(n, count)), took,
                  took * (count < 5000 ? 0.03 : 0.005))
          << n << " " << density;
    }
}

}  // namespace
}  // namespace penstock::wire::positions_test
