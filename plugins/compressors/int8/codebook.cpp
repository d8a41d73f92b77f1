// See codebook.hpp. The nearest code is found by the upper bits of the float: sign, exponent and
// six bits of mantissa give a cell so small that at most one boundary between two codes lies in it.
#include "codebook.hpp"

#include <kernels/dynamic_tree.hpp>
#include <kernels/on_code_path.hpp>

#include <algorithm>
#include <array>
#include <bit>

namespace penstock::int8 {
namespace {

using kernels::CodePath;

constexpr int32_t kCellShift = 23 - 6;
constexpr int32_t kFirstCell = (127 - 22) << 6;  // 2^-22: below half of the smallest value
constexpr int32_t kCells = 22 * 64 + 1;          // up to 1 itself

constexpr kernels::DynamicTree kTree = kernels::make_dynamic_tree();

// The level of the least magnitude of each cell.
constexpr std::array<int32_t, kCells> make_levels() {
  std::array<int32_t, kCells> levels{};
  int32_t level = 0;
  for (int32_t cell = 0; cell < kCells; ++cell) {
    const auto least = std::bit_cast<float>((cell + kFirstCell) << kCellShift);
    while (least > kTree.ends[level]) ++level;
    levels[static_cast<uint64_t>(cell)] = level;
  }
  return levels;
}

constexpr std::array<int32_t, kCells> kLevels = make_levels();

}  // namespace

void encode(const float* x, uint64_t count, float scale, uint8_t* codes, CodePath path) noexcept {
  kernels::on_code_path(path, [=]() PENSTOCK_LOOP {
    for (uint64_t i = 0; i < count; ++i) {
      const float ratio = x[i] / scale;
      const auto bits = std::bit_cast<uint32_t>(ratio);
      const auto magnitude_bits = static_cast<int32_t>(bits & 0x7fffffffu);
      const auto magnitude = std::bit_cast<float>(magnitude_bits);
      const int32_t cell = std::max((magnitude_bits >> kCellShift) - kFirstCell, 0);
      const int32_t least = kLevels[static_cast<uint32_t>(cell)];
      const int32_t level = least + (magnitude > kTree.ends[static_cast<uint32_t>(least)] ? 1 : 0);
      codes[i] = kernels::tree_code(level, bits >> 31 != 0);
    }
  });
}

void add(const uint8_t* codes, uint64_t count, float scale, float* out, CodePath path) noexcept {
  kernels::on_code_path(path, [=]() PENSTOCK_LOOP {
    for (uint64_t i = 0; i < count; ++i) out[i] += kTree.values[codes[i]] * scale;
  });
}

void subtract(const uint8_t* codes, uint64_t count, float scale, float* x, CodePath path) noexcept {
  kernels::on_code_path(path, [=]() PENSTOCK_LOOP {
    for (uint64_t i = 0; i < count; ++i) x[i] -= kTree.values[codes[i]] * scale;
  });
}

}  // namespace penstock::int8
