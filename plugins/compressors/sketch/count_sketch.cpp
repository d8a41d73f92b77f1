// See count_sketch.hpp.
#include "count_sketch.hpp"

#include <kernels/on_code_path.hpp>

#include <algorithm>
#include <cstring>

namespace penstock::sketch {
namespace {

using kernels::CodePath;

// elements processed at a time, so that words and rows stay in cache
constexpr uint64_t kTile = 512;

kernels::RandomKey key_of_row(const Hashes& hashes, uint64_t row) {
  kernels::RandomSource source = hashes.source;
  source.rank = row;
  return kernels::random_key(source);
}

uint64_t column_of(uint32_t word, uint64_t columns) {
  return (uint64_t{word >> 1} * columns) >> 31;
}
float signed_as(uint32_t word, float value) {
  return (word & 1) != 0 ? -value : value;
}

// Sorts lane by lane and leaves the medians in the middle row. It uses odd-even transposition, a
// network that compilers turn into vector minima and maxima.
void sort_rows(float (*rows)[kTile], uint64_t n_rows, CodePath path) {
  kernels::on_code_path(path, [=]() PENSTOCK_LOOP {
    for (uint64_t pass = 0; pass < n_rows; ++pass)
      for (uint64_t r = pass % 2; r + 1 < n_rows; r += 2)
        for (uint64_t i = 0; i < kTile; ++i) {
          const float one = rows[r][i], other = rows[r + 1][i];
          rows[r][i] = one < other ? one : other;
          rows[r + 1][i] = one < other ? other : one;
        }
  });
}

}  // namespace

void sketch(const float* x, uint64_t numel, const Shape& shape, const Hashes& hashes, float* table,
            CodePath path) noexcept {
  std::fill(table, table + shape.entries(), 0.0f);
  uint32_t words[kTile];
  for (uint64_t r = 0; r < shape.rows; ++r) {
    const kernels::RandomKey key = key_of_row(hashes, r);
    float* const row = table + r * shape.columns;
    for (uint64_t at = 0; at < numel; at += kTile) {
      const uint64_t count = std::min(kTile, numel - at);
      kernels::random_words(key, hashes.first + at, count, words, path);
      for (uint64_t i = 0; i < count; ++i)
        row[column_of(words[i], shape.columns)] += signed_as(words[i], x[at + i]);
    }
  }
}

void estimate(const float* table, uint64_t numel, const Shape& shape, const Hashes& hashes,
              float* estimates, CodePath path) noexcept {
  kernels::RandomKey keys[kMostRows];
  for (uint64_t r = 0; r < shape.rows; ++r) keys[r] = key_of_row(hashes, r);
  uint32_t words[kTile];
  float rows[kMostRows][kTile] = {};
  for (uint64_t at = 0; at < numel; at += kTile) {
    const uint64_t count = std::min(kTile, numel - at);
    for (uint64_t r = 0; r < shape.rows; ++r) {
      const float* const row = table + r * shape.columns;
      kernels::random_words(keys[r], hashes.first + at, count, words, path);
      for (uint64_t i = 0; i < count; ++i)
        rows[r][i] = signed_as(words[i], row[column_of(words[i], shape.columns)]);
    }
    sort_rows(rows, shape.rows, path);
    std::memcpy(estimates + at, rows[shape.rows / 2], count * sizeof(float));
  }
}

}  // namespace penstock::sketch
