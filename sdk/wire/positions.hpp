// Ascending positions in few bytes.
//
//   const PositionsPlan plan = plan_positions(positions, n, path);    // the shortest coding
//   write_positions(plan, positions, n, target, path);                // plan.bytes() of them
//
//   PositionsReader<uint32_t> reader(path);
//   std::string refused = reader.open(bytes, n);
//   while (refused.empty() && reader.left() > 0) refused = reader.take(slice);
//
// Positions are unique, ascend and lie below n, which is at most 2^63. They are uint32_t where n is
// at most 2^32, or uint64_t. Every code path writes and reads the same.
#pragma once

#include <kernels/code_path.hpp>
#include <wire/blocks.hpp>
#include <wire/header.hpp>
#include <wire/raw.hpp>
#include <wire/rice.hpp>

#include <tuple>
#include <variant>

namespace penstock::wire {

// Their places in PositionCodes are their numbers on the wire.
template <typename Position>
using PositionCodes = std::tuple<Raw<Position>, Blocks<Position>, Rice<Position>>;

inline constexpr uint8_t kRaw = 0, kBlocks = 1, kRice = 2;
inline constexpr unsigned kPositionCodings = 3;

// Codings that may be chosen: bit c for coding c. Raw may be always.
using Codings = unsigned;
inline constexpr Codings kEveryCoding = (1u << kPositionCodings) - 1;

// Of which coding a section will be, and its size to the byte.
struct PositionsPlan {
  Header header;
  uint64_t bytes() const noexcept { return header_bytes(header) + header.length; }
};

// No section of `count` positions below n is longer. [any]
constexpr uint64_t positions_bound(uint64_t n, uint64_t count) noexcept {
  return kMostHeaderBytes + count * raw_position_bytes(n);
}

// The bytes of a section of `count` positions below n, drawn at random: for planning. [any]
uint64_t expected_positions_bytes(uint64_t n, uint64_t count) noexcept;

// The shortest of the codings, of equals the one with the lowest number. What does not ascend is
// planned to travel raw or in blocks, where the reader refuses it. [any]
template <typename Position>
PositionsPlan plan_positions(std::span<const Position> positions, uint64_t n,
                             kernels::CodePath path, Codings allowed = kEveryCoding) noexcept;

// Writes plan.bytes() bytes. `plan` is that of these positions. [any]
template <typename Position>
void write_positions(const PositionsPlan& plan, std::span<const Position> positions, uint64_t n,
                     unsigned char* target, kernels::CodePath path) noexcept;

// Reads one section. The bytes are input: whatever they are, positions that are given ascend and
// lie below n, or the section is refused, by the end of a sentence that says why. After that the
// reader is not used further. The bytes outlive it. [any], one thread at a time.
template <typename Position>
class PositionsReader {
 public:
  explicit PositionsReader(kernels::CodePath path) noexcept : path_(path) {}

  // Begins with the section at the front of `bytes`, behind which other things may follow. What is
  // wrong with the positions themselves shows in take.
  std::string open(std::span<const unsigned char> bytes, uint64_t n);

  const Header& header() const noexcept { return section_.header; }
  // Of the section, header included.
  uint64_t bytes() const noexcept { return section_.bytes; }
  uint64_t left() const noexcept { return left_; }

  // Fills `slice` with the next positions: at most left(), and a multiple of kSlice unless it is
  // all of them. After a refusal its content is undefined.
  std::string take(std::span<Position> slice);

 private:
  kernels::CodePath path_;
  Section section_;
  uint64_t left_ = 0;
  std::variant<Raw<Position>, Blocks<Position>, Rice<Position>> code_;
};

// A whole section at once: `positions` gets header().count of them. [any]
template <typename Position>
std::string read_positions(std::span<const unsigned char> bytes, uint64_t n,
                           std::span<Position> room, uint64_t& count, kernels::CodePath path) {
  PositionsReader<Position> reader(path);
  std::string refused = reader.open(bytes, n);
  if (!refused.empty()) return refused;
  count = reader.left();
  if (count > room.size())
    return sentence("has ", count, " positions, at most ", room.size(), " are legal");
  return reader.take(room.first(count));
}

}  // namespace penstock::wire
