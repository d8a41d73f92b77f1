// Tests sections with random changes: every code path must read them as the bit-by-bit reader does,
// or refuse them, with equal results, and must not read beyond them.
#include <gtest/gtest.h>
#include <fuzz/mutate.hpp>
#include <support/long.hpp>
#include <wire/plain_testing.hpp>
#include <wire/positions.hpp>
#include <wire/values.hpp>

#include <cmath>
#include <memory>

namespace penstock::wire::fuzz_test {
namespace {

using kernels::CodePath;
using penstock::test::Random;
using test::Bytes;
using test::Drawn;
using test::Numbers;

uint64_t rounds() {
  return penstock::test::is_long() ? 200 : 4;
}

// Bytes in heap memory of their exact size, so that a sanitizer finds a read beyond their end.
class Exact {
 public:
  explicit Exact(const Bytes& bytes) : data_(new unsigned char[bytes.size()]), size_(bytes.size()) {
    std::copy(bytes.begin(), bytes.end(), data_.get());
  }
  std::span<const unsigned char> span() const { return {data_.get(), size_}; }

 private:
  std::unique_ptr<unsigned char[]> data_;
  size_t size_;
};

template <typename Position>
std::optional<Numbers> read(const Exact& bytes, uint64_t n, CodePath path) {
  PositionsReader<Position> reader(path);
  if (!reader.open(bytes.span(), n).empty()) return {};
  Numbers found;
  while (reader.left() > 0) {
    std::vector<Position> part(std::min(kSlice, reader.left()));
    if (!reader.take(part).empty()) return {};
    found.insert(found.end(), part.begin(), part.end());
  }
  return found;
}

template <typename Position>
void check_positions(const Bytes& bytes, uint64_t n, const std::string& what) {
  const std::optional<Numbers> expected = test::plain_positions(bytes, n);
  const Exact exact(bytes);
  for (const CodePath path : kernels::kAllCodePaths) {
    if (!kernels::code_path_supported(path)) continue;
    ASSERT_EQ(read<Position>(exact, n, path), expected)
        << what << ", " << kernels::code_path_name(path);
  }
}

template <typename Position>
Bytes written(const Drawn& drawn, unsigned coding) {
  const std::vector<Position> positions(drawn.positions.begin(), drawn.positions.end());
  const std::span<const Position> span(positions);
  const auto path = kernels::widest_code_path();
  const PositionsPlan plan = plan_positions(span, drawn.n, path, 1u << coding);
  Bytes bytes(plan.bytes());
  write_positions(plan, span, drawn.n, bytes.data(), path);
  return bytes;
}

Bytes changed(Bytes bytes, uint64_t n, Random& random) {
  switch (random.below(4)) {
    case 0:
      bytes[random.below(bytes.size())] ^= static_cast<unsigned char>(1u << random.below(8));
      break;
    case 1:
      bytes.resize(random.below(bytes.size() + 1));
      break;
    case 2: {  // of the header, or just behind it
      const uint64_t at = random.below(std::min<uint64_t>(bytes.size(), 12));
      bytes[at] = static_cast<unsigned char>(random.bits());
      break;
    }
    default:
      penstock::test::mutate_bytes(bytes.data(), bytes.size(), n, random);
  }
  return bytes;
}

template <typename Position>
void fuzz(const std::vector<Drawn>& all, uint64_t seed) {
  Random random(seed);
  for (const Drawn& drawn : all)
    for (unsigned coding = 0; coding < kPositionCodings; ++coding) {
      const Bytes bytes = written<Position>(drawn, coding);
      if (bytes.size() > 40000) continue;  // the plain reader is slow; smaller sections suffice
      const uint64_t count = bytes.size() < 2000 ? 10 * rounds() : rounds();
      for (uint64_t round = 0; round < count; ++round)
        ASSERT_NO_FATAL_FAILURE(
            check_positions<Position>(changed(bytes, drawn.n, random), drawn.n, drawn.name));
    }
}

TEST(FuzzedPositions, AreReadAsTheBitsSayOrRefused) {
  fuzz<uint32_t>(test::drawn_positions(), 11);
}

TEST(FuzzedPositions, BeyondThirtyTwoBitsAreReadAsTheBitsSayOrRefused) {
  fuzz<uint64_t>(test::far_positions(), 12);
}

TEST(FuzzedPositions, WithAnyBitOfASmallSectionFlippedAreReadAsTheBitsSayOrRefused) {
  Random random(13);
  const Drawn drawn = test::random_positions(70000, 40, random);
  for (unsigned coding = 0; coding < kPositionCodings; ++coding) {
    const Bytes bytes = written<uint32_t>(drawn, coding);
    for (uint64_t bit = 0; bit < 8 * bytes.size(); ++bit) {
      Bytes flipped = bytes;
      flipped[bit / 8] ^= static_cast<unsigned char>(1u << bit % 8);
      ASSERT_NO_FATAL_FAILURE(check_positions<uint32_t>(flipped, drawn.n, "a flipped bit"));
    }
    for (uint64_t size = 0; size < bytes.size(); ++size)
      EXPECT_FALSE(read<uint32_t>(Exact(Bytes(bytes.begin(), bytes.begin() + ptrdiff_t(size))),
                                  drawn.n, CodePath::kPortable))
          << "cut off after " << size;
  }
}

TEST(FuzzedPositions, OfRandomBytesAreReadAsTheBitsSayOrRefused) {
  Random random(14);
  for (uint64_t round = 0; round < 2000 * rounds(); ++round) {
    Bytes bytes(random.below(64));
    for (unsigned char& byte : bytes) byte = static_cast<unsigned char>(random.bits());
    if (bytes.size() > 5 && random.below(4) != 0) {  // with a header that could be
      bytes[0] = static_cast<unsigned char>(random.below(3));
      bytes[1] = static_cast<unsigned char>(random.below(32));
      bytes[2] = 0;
      bytes[3] = static_cast<unsigned char>(random.below(40));
      bytes[4] = static_cast<unsigned char>(bytes.size() - 5);
    }
    const uint64_t n = uint64_t{1} << random.below(34);
    ASSERT_NO_FATAL_FAILURE(check_positions<uint64_t>(bytes, n, "random bytes"));
    if (n > uint64_t{1} << 32) continue;
    ASSERT_NO_FATAL_FAILURE(check_positions<uint32_t>(bytes, n, "random bytes"));
  }
}

// The result of reading a section: the reason for its refusal, or the bits of its values.
struct Answer {
  std::string refused;
  std::vector<uint32_t> bits;
  bool finite = true;
  bool operator==(const Answer&) const = default;
};

Answer read_floats(const Exact& bytes, CodePath path) {
  Answer answer;
  std::vector<float> room(1100);
  uint64_t count = 0;
  answer.refused = read_values(bytes.span(), room, count, path);
  if (!answer.refused.empty()) return answer;
  for (uint64_t i = 0; i < count; ++i) {
    answer.bits.push_back(std::bit_cast<uint32_t>(room[i]));
    answer.finite = answer.finite && std::isfinite(room[i]);
  }
  return answer;
}

void check_values(const Bytes& bytes) {
  const Exact exact(bytes);
  const Answer answer = read_floats(exact, CodePath::kPortable);
  ASSERT_TRUE(answer.finite || bytes[0] == kFloat32);
  for (const CodePath path : kernels::kAllCodePaths)
    ASSERT_TRUE(!kernels::code_path_supported(path) || read_floats(exact, path) == answer)
        << kernels::code_path_name(path);
}

TEST(FuzzedValues, AreFiniteOrFloat32OrRefused) {
  Random random(15);
  for (const uint8_t coding : {kFloat32, kFloat16, kBfloat16, kSign})
    for (const uint64_t count : {0, 1, 2, 3, 65, 513, 1000}) {
      const std::vector<float> values = penstock::test::heavy_tailed(count, count);
      Bytes bytes(values_bound(count));
      bytes.resize(write_values(coding, values, bytes.data(), kernels::widest_code_path()));
      for (uint64_t round = 0; round < 200 * rounds(); ++round)
        ASSERT_NO_FATAL_FAILURE(check_values(changed(bytes, count + 1, random)));
    }
}

}  // namespace
}  // namespace penstock::wire::fuzz_test
