#include <wire/positions.hpp>

#include <algorithm>
#include <cmath>

namespace penstock::wire {
namespace {

// Calls `action` with an object of each coding's class and its number.
template <typename Position, typename Action, size_t... kCoding>
void for_each_coding(const Action& action, std::index_sequence<kCoding...>) {
  (action(std::type_identity<std::tuple_element_t<kCoding, PositionCodes<Position>>>{},
          static_cast<uint8_t>(kCoding)),
   ...);
}

template <typename Position, typename Action>
void for_each_coding(const Action& action) {
  for_each_coding<Position>(action, std::make_index_sequence<kPositionCodings>{});
}

// The expected bytes of Rice's code with a parameter, for geometrically distributed gaps.
double expected_rice_bytes(double n, double count, int16_t parameter) {
  const double longer = std::pow(1 - count / n, std::exp2(parameter));  // than a quotient of 0
  return std::ceil(count * parameter / 8) + std::ceil(count / (1 - longer) / 8);
}

}  // namespace

uint64_t expected_positions_bytes(uint64_t n, uint64_t count) noexcept {
  if (count == 0) return header_bytes({});
  const uint64_t last_block = (n - 1) / 65536;
  double length =
      static_cast<double>(std::min(count * raw_position_bytes(n), last_block * 4 + count * 2));
  for (int16_t b = 0; b <= Rice<uint64_t>::kMostParameter; ++b)
    length = std::min(length,
                      expected_rice_bytes(static_cast<double>(n), static_cast<double>(count), b));
  const auto bytes = static_cast<uint64_t>(std::llround(length));
  return header_bytes({kRice, 0, count, bytes}) + bytes;
}

template <typename Position>
PositionsPlan plan_positions(std::span<const Position> positions, uint64_t n,
                             kernels::CodePath path, Codings allowed) noexcept {
  if (positions.empty()) return {};
  PositionsPlan best;
  best.header.length = kNever;
  for_each_coding<Position>([&]<typename Code>(std::type_identity<Code>, uint8_t coding) {
    if (coding != kRaw && (allowed >> coding & 1) == 0) return;
    const Fit fit = Code::fit(positions, n, path);
    if (fit.length < best.header.length)
      best.header = {coding, fit.parameter, positions.size(), fit.length};
  });
  return best;
}

template <typename Position>
void write_positions(const PositionsPlan& plan, std::span<const Position> positions, uint64_t n,
                     unsigned char* target, kernels::CodePath path) noexcept {
  unsigned char* body = write_header(plan.header, target);
  if (positions.empty()) return;
  for_each_coding<Position>([&]<typename Code>(std::type_identity<Code>, uint8_t coding) {
    if (coding == plan.header.coding) Code::write(positions, n, plan.header.parameter, body, path);
  });
}

template <typename Position>
std::string PositionsReader<Position>::open(std::span<const unsigned char> bytes, uint64_t n) {
  std::string refused = read_section(bytes, section_);
  if (!refused.empty()) return refused;
  const Header& header = section_.header;
  if (sizeof(Position) == 4 && n > uint64_t{1} << 32)
    return sentence("has positions below ", n,
                    ", which 32 bits do not hold; read it with uint64_t");
  if (header.coding >= kPositionCodings)
    return sentence("is of the unknown coding ", unsigned{header.coding}, ", expected one below ",
                    kPositionCodings);
  if (header.count > n) return sentence("claims ", header.count, " positions below ", n);
  if (header.count == 0 && (header.coding != kRaw || header.parameter != 0 || header.length != 0))
    return "has no positions and yet a coding or bytes";
  if (header.count > 8 * header.length)
    return sentence("claims ", header.count, " positions in ", header.length, " bytes");
  left_ = header.count;
  if (left_ == 0) return {};
  for_each_coding<Position>([&]<typename Code>(std::type_identity<Code>, uint8_t coding) {
    if (coding == header.coding) refused = code_.template emplace<Code>().open(section_, n, path_);
  });
  return refused;
}

template <typename Position>
std::string PositionsReader<Position>::take(std::span<Position> slice) {
  if (slice.empty()) return {};
  left_ -= slice.size();
  return std::visit([&](auto& code) { return code.take(slice); }, code_);
}

#define PENSTOCK_POSITIONS(Position)                                                            \
  template PositionsPlan plan_positions(std::span<const Position>, uint64_t, kernels::CodePath, \
                                        Codings) noexcept;                                      \
  template void write_positions(const PositionsPlan&, std::span<const Position>, uint64_t,      \
                                unsigned char*, kernels::CodePath) noexcept;                    \
  template class PositionsReader<Position>;
PENSTOCK_POSITIONS(uint32_t)
PENSTOCK_POSITIONS(uint64_t)
#undef PENSTOCK_POSITIONS

}  // namespace penstock::wire
