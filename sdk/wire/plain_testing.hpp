// Reads and writes sections bit by bit, from the table in docs/payloads.md, for comparison with the
// coders; and draws positions for tests.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <testing/data.hpp>
#include <vector>

namespace penstock::wire::test {

using Bytes = std::vector<unsigned char>;
using Numbers = std::vector<uint64_t>;

struct PlainHeader {
  unsigned coding = 0;
  int parameter = 0;
  uint64_t count = 0, length = 0, size = 0;
};

inline std::optional<PlainHeader> plain_header(const Bytes& bytes) {
  if (bytes.size() < 3) return {};
  PlainHeader header;
  header.coding = bytes[0];
  header.parameter = static_cast<int16_t>(bytes[1] | bytes[2] << 8);
  uint64_t at = 3;
  for (uint64_t* number : {&header.count, &header.length}) {
    for (unsigned shift = 0;; shift += 7) {
      if (at == bytes.size() || shift > 63) return {};
      const uint64_t seven = bytes[at] & 127;
      if (shift == 63 && seven > 1) return {};
      *number |= seven << shift;
      if (bytes[at++] < 128) {
        if (seven == 0 && shift > 0) return {};
        break;
      }
    }
  }
  header.size = at;
  if (header.length > bytes.size() - at) return {};
  return header;
}

class Bits {
 public:
  Bits(const unsigned char* bytes, uint64_t count) : bytes_(bytes), count_(8 * count) {}
  uint64_t count() const { return count_; }
  bool operator[](uint64_t i) const { return (bytes_[i / 8] >> (i % 8) & 1) != 0; }
  uint64_t number(uint64_t first, unsigned width) const {
    uint64_t value = 0;
    for (unsigned i = 0; i < width; ++i) value |= uint64_t{(*this)[first + i]} << i;
    return value;
  }

 private:
  const unsigned char* bytes_;
  uint64_t count_;
};

// The place in the body of bit `bit` of remainder j, of `count` remainders with `width` bits.
inline uint64_t remainder_bit(uint64_t j, uint64_t count, unsigned width, unsigned bit) {
  const uint64_t group = j / 512, in_group = j % 512;
  if (512 * (group + 1) > count) return 512 * group * width + in_group * width + bit;
  const uint64_t lane = in_group % 16, of_lane = in_group / 16 * width + bit;
  return 512 * group * width + of_lane / 32 * 512 + lane * 32 + of_lane % 32;
}

inline std::optional<Numbers> plain_rice(const Bits& bits, const PlainHeader& header, uint64_t n) {
  if (header.parameter < 0 || header.parameter > 31) return {};
  const auto width = static_cast<unsigned>(header.parameter);
  uint64_t at = (header.count * width + 7) / 8 * 8;
  Numbers positions;
  uint64_t next = 0;
  for (uint64_t j = 0; j < header.count; ++j, ++at) {
    uint64_t gap = 0;
    for (; at < bits.count() && !bits[at]; ++at) ++gap;
    if (at >= bits.count() || gap > n >> width) return {};
    gap <<= width;
    for (unsigned bit = 0; bit < width; ++bit)
      gap += uint64_t{bits[remainder_bit(j, header.count, width, bit)]} << bit;
    if (gap >= n - next) return {};
    positions.push_back(next + gap);
    next += gap + 1;
    if (next == n && j + 1 < header.count) return {};
  }
  if ((at + 7) / 8 * 8 != bits.count()) return {};
  for (; at < bits.count(); ++at)
    if (bits[at]) return {};
  return positions;
}

// The positions in a section, or no value if a reader must refuse it.
inline std::optional<Numbers> plain_positions(const Bytes& bytes, uint64_t n) {
  const auto header = plain_header(bytes);
  if (!header || header->coding > 2 || header->count > n) return {};
  if (header->count == 0) {
    if (header->coding != 0 || header->parameter != 0 || header->length != 0) return {};
    return Numbers{};
  }
  const Bits bits(bytes.data() + header->size, header->length);
  if (header->count > bits.count()) return {};
  if (header->coding == 2) return plain_rice(bits, *header, n);
  Numbers positions;
  if (header->parameter != 0) return {};
  if (header->coding == 0) {
    const unsigned width = n <= uint64_t{1} << 32 ? 32 : 64;
    if (bits.count() != header->count * width) return {};
    for (uint64_t j = 0; j < header->count; ++j) positions.push_back(bits.number(j * width, width));
  } else {
    const uint64_t blocks = (n + 65535) / 65536, table = 32 * (blocks - 1);
    if (bits.count() != table + 16 * header->count) return {};
    uint64_t left = header->count;
    for (uint64_t block = 0; block < blocks; ++block) {
      const uint64_t some = block + 1 < blocks ? bits.number(32 * block, 32) : left;
      if (some > left) return {};
      for (uint64_t i = 0; i < some; ++i, --left)
        positions.push_back(65536 * block + bits.number(table + 16 * (header->count - left), 16));
    }
  }
  for (uint64_t j = 0; j < positions.size(); ++j)
    if (positions[j] >= n || (j > 0 && positions[j] <= positions[j - 1])) return {};
  return positions;
}

// Positions below n, with a name for messages.
struct Drawn {
  std::string name;
  uint64_t n;
  Numbers positions;
};

inline Drawn random_positions(uint64_t n, uint64_t count, penstock::test::Random& random) {
  Numbers drawn;
  if (count > n / 50) {
    for (uint64_t i = 0; drawn.size() < count; ++i)
      if (random.below(n - i) < count - drawn.size()) drawn.push_back(i);
  }
  while (drawn.size() < count) {
    for (uint64_t i = drawn.size(); i < count; ++i) drawn.push_back(random.below(n));
    std::sort(drawn.begin(), drawn.end());
    drawn.erase(std::unique(drawn.begin(), drawn.end()), drawn.end());
  }
  return {std::to_string(count) + " of " + std::to_string(n), n, std::move(drawn)};
}

// Rows of `width` positions: few rows have positions, and these rows have many.
inline Drawn clustered(uint64_t n, uint64_t width, penstock::test::Random& random) {
  Drawn drawn{"clusters in " + std::to_string(n), n, {}};
  for (uint64_t row = 0; row < n / width; ++row) {
    if (random.below(16) != 0) continue;
    for (uint64_t i = 0; i < width; ++i)
      if (random.below(3) == 0) drawn.positions.push_back(row * width + i);
  }
  return drawn;
}

inline Drawn runs(uint64_t n, uint64_t length, uint64_t pause) {
  Drawn drawn{"runs in " + std::to_string(n), n, {}};
  for (uint64_t i = 0; i < n; ++i)
    if (i % (length + pause) < length) drawn.positions.push_back(i);
  return drawn;
}

// Many densities and shapes: sizes 0, 1 and odd; around a slice, a stride, a block; and the ends.
inline std::vector<Drawn> drawn_positions() {
  penstock::test::Random random(3);
  std::vector<Drawn> all{{"none of nothing", 0, {}}, {"none of 7", 7, {}}};
  for (const uint64_t n : {1, 2, 63, 64, 65, 1000, 65535, 65536, 65537, 131072, 300001})
    for (const uint64_t count : {uint64_t{1}, uint64_t{2}, n / 1000, n / 100, n / 10, n / 2, n})
      if (count > 0 && count <= n) all.push_back(random_positions(n, count, random));
  for (const uint64_t count : {511, 512, 513, 1023, 1024, 1025})
    all.push_back(random_positions(100000, count, random));
  for (const uint64_t n : {4096, 200000}) {
    all.push_back(clustered(n, 64, random));
    all.push_back(runs(n, 100, 3000));
    all.push_back(runs(n, 1, 1));
    all.push_back(runs(n, 33, 1));
  }
  const uint64_t most = uint64_t{1} << 32;
  all.push_back({"the first and the last", 1000, {0, 999}});
  all.push_back({"the ends of 32 bits", most, {0, 1, most / 2, most - 2, most - 1}});
  all.push_back({"the last of 32 bits", most, {most - 1}});
  all.push_back(random_positions(most, 3000, random));
  return all;
}

// Positions that need 64 bits.
inline std::vector<Drawn> far_positions() {
  penstock::test::Random random(4);
  const uint64_t n = uint64_t{1} << 40, end = uint64_t{1} << 63;
  std::vector<Drawn> all{{"beyond", (uint64_t{1} << 32) + 1, {uint64_t{1} << 32}},
                         {"ends of 63 bits", end, {0, end - 1}}};
  for (const uint64_t count : {1, 3, 700, 20000}) all.push_back(random_positions(n, count, random));
  Drawn near = random_positions(1 << 20, 30001, random);
  for (uint64_t& position : near.positions) position += (uint64_t{1} << 33) - 1000;
  near.n = n;
  near.name = "a cluster far out";
  all.push_back(near);
  // Many positions, for which blocks are the shortest coding: 2^33 elements in 131072 blocks.
  Drawn dense = random_positions(uint64_t{1} << 33, 400000, random);
  all.push_back(dense);
  return all;
}

}  // namespace penstock::wire::test
