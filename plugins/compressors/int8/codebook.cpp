// See codebook.hpp. The nearest code is found by the upper bits of the float: sign, exponent and
// six bits of mantissa give a cell so small that at most one boundary between two codes lies in it.
#include "codebook.hpp"

#include <kernels/on_code_path.hpp>

#include <algorithm>
#include <bit>

namespace penstock::int8 {
namespace {

using kernels::CodePath;

constexpr int32_t kZero = 127;      // code of 0
constexpr int32_t kPositive = 128;  // codes above it
constexpr int32_t kCellShift = 23 - 6;
constexpr int32_t kFirstCell = (127 - 22) << 6;  // 2^-22: below half of the smallest value
constexpr int32_t kCells = 22 * 64 + 1;          // up to 1 itself

constexpr std::array<float, 256> make_codebook() {
  std::array<float, 256> values{};
  double decade = 1e-6;
  uint64_t next = kZero + 1;
  for (unsigned d = 0; d < 7; ++d, decade *= 10) {
    const unsigned cells = 1u << d;
    for (unsigned j = 0; j < cells; ++j) {
      const float value = static_cast<float>(decade * (0.1 + 0.9 * (j + 0.5) / cells));
      values[next] = value;
      values[2 * kZero - next] = -value;
      ++next;
    }
  }
  values[255] = 1;
  return values;
}

struct Search {
  // Levels count from zero: level l is code kZero + l. A magnitude above at[l] is nearer to level
  // l + 1 than to l: at[l] is the greatest float that is not above the middle between them. The
  // last is above all magnitudes.
  std::array<float, kPositive + 1> at{};
  std::array<int32_t, kCells> level{};  // of the least magnitude of the cell
};

constexpr Search make_search(const std::array<float, 256>& values) {
  Search search;
  for (uint64_t l = 0; l < kPositive; ++l) {
    const double middle = (double{values[kZero + l]} + double{values[kZero + l + 1]}) / 2;
    auto below = static_cast<float>(middle);
    if (double{below} > middle) below = std::bit_cast<float>(std::bit_cast<uint32_t>(below) - 1);
    search.at[l] = below;
  }
  search.at[kPositive] = 2;
  int32_t level = 0;
  for (int32_t cell = 0; cell < kCells; ++cell) {
    const auto least = std::bit_cast<float>((cell + kFirstCell) << kCellShift);
    while (least > search.at[static_cast<uint64_t>(level)]) ++level;
    search.level[static_cast<uint64_t>(cell)] = level;
  }
  return search;
}

constexpr Search kSearch = make_search(make_codebook());

}  // namespace

constinit const std::array<float, 256> kCodebook = make_codebook();

void encode(const float* x, uint64_t count, float scale, uint8_t* codes, CodePath path) noexcept {
  kernels::on_code_path(path, [=]() PENSTOCK_LOOP {
    for (uint64_t i = 0; i < count; ++i) {
      const float ratio = x[i] / scale;
      const auto bits = std::bit_cast<uint32_t>(ratio);
      const auto magnitude_bits = static_cast<int32_t>(bits & 0x7fffffffu);
      const auto magnitude = std::bit_cast<float>(magnitude_bits);
      const int32_t cell = std::max((magnitude_bits >> kCellShift) - kFirstCell, 0);
      const int32_t least = kSearch.level[static_cast<uint32_t>(cell)];
      const int32_t level = least + (magnitude > kSearch.at[static_cast<uint32_t>(least)] ? 1 : 0);
      const int32_t below = kZero - std::min(level, kZero);  // -1 has no code of its own
      codes[i] = static_cast<uint8_t>(bits >> 31 != 0 ? below : kZero + level);
    }
  });
}

void add(const uint8_t* codes, uint64_t count, float scale, float* out, CodePath path) noexcept {
  kernels::on_code_path(path, [=]() PENSTOCK_LOOP {
    for (uint64_t i = 0; i < count; ++i) out[i] += kCodebook[codes[i]] * scale;
  });
}

void subtract(const uint8_t* codes, uint64_t count, float scale, float* x, CodePath path) noexcept {
  kernels::on_code_path(path, [=]() PENSTOCK_LOOP {
    for (uint64_t i = 0; i < count; ++i) x[i] -= kCodebook[codes[i]] * scale;
  });
}

}  // namespace penstock::int8
