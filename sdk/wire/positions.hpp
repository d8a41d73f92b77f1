// Codes ascending positions in few bytes.
//
//   const PositionsPlan plan = plan_positions(positions, n, path);    // the shortest coding
//   write_positions(plan, positions, n, target, path);                // writes plan.bytes()
//
//   PositionsReader<uint32_t> reader(path);
//   std::string refused = reader.open(bytes, n);
//   while (refused.empty() && reader.left() > 0) refused = reader.take(slice);
//
// Positions are unique, ascend and lie below n, which is at most 2^63. Their type is uint32_t if n
// is at most 2^32, otherwise uint64_t. Every code path writes and reads equal bytes.
#pragma once

#include <kernels/code_path.hpp>
#include <wire/blocks.hpp>
#include <wire/header.hpp>
#include <wire/raw.hpp>
#include <wire/rice.hpp>

#include <tuple>
#include <variant>

namespace penstock::wire {

// The codings. The place of a coding in PositionCodes is its number on the wire.
template <typename Position>
using PositionCodes = std::tuple<Raw<Position>, Blocks<Position>, Rice<Position>>;

inline constexpr uint8_t kRaw = 0, kBlocks = 1, kRice = 2;
inline constexpr unsigned kPositionCodings = 3;

// Codings that may be chosen: bit c for coding c. Raw is always allowed.
using Codings = unsigned;
inline constexpr Codings kEveryCoding = (1u << kPositionCodings) - 1;

// The coding of a future section, and its exact size.
struct PositionsPlan {
  Header header;
  uint64_t bytes() const noexcept { return header_bytes(header) + header.length; }
};

// The largest size of a section of `count` positions below n, in bytes. [any]
constexpr uint64_t positions_bound(uint64_t n, uint64_t count) noexcept {
  return kMostHeaderBytes + count * raw_position_bytes(n);
}

// The expected bytes of a section of `count` random positions below n, for planning. [any]
uint64_t expected_positions_bytes(uint64_t n, uint64_t count) noexcept;

// Chooses the shortest coding; between equal sizes the lowest number. Positions that do not ascend
// are planned as raw or blocks, and the reader refuses them. [any]
template <typename Position>
PositionsPlan plan_positions(std::span<const Position> positions, uint64_t n,
                             kernels::CodePath path, Codings allowed = kEveryCoding) noexcept;

// Writes plan.bytes() bytes. `plan` must be the plan of these positions. [any]
template <typename Position>
void write_positions(const PositionsPlan& plan, std::span<const Position> positions, uint64_t n,
                     unsigned char* target, kernels::CodePath path) noexcept;

// Reads one section. The bytes are untrusted input: for any bytes, the returned positions ascend
// and lie below n, or the section is refused; then the returned text is the end of a sentence with
// the reason. After a refusal the reader must not be used. The bytes must outlive it. [any], one
// thread at a time.
template <typename Position>
class PositionsReader {
 public:
  explicit PositionsReader(kernels::CodePath path) noexcept : path_(path) {}

  // Begins with the section at the front of `bytes`; other data may follow it. Faults of the
  // positions themselves are found by take.
  std::string open(std::span<const unsigned char> bytes, uint64_t n);

  const Header& header() const noexcept { return section_.header; }
  // Bytes of the section, header included.
  uint64_t bytes() const noexcept { return section_.bytes; }
  uint64_t left() const noexcept { return left_; }

  // Fills `slice` with the next positions. Its size must be at most left(), and a multiple of
  // kSlice unless it is left(). After a refusal its content is undefined.
  std::string take(std::span<Position> slice);

 private:
  kernels::CodePath path_;
  Section section_;
  uint64_t left_ = 0;
  std::variant<Raw<Position>, Blocks<Position>, Rice<Position>> code_;
};

// Reads a whole section at once: `room` receives `count` positions. [any]
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
