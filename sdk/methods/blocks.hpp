// Blocks of 64 x 64 elements, for methods that choose the largest elements of each block.
//
// A gradient of two dimensions is cut into blocks of 64 rows and 64 columns; the blocks at its
// lower and right edges are smaller. A vector of at most 65,536 elements, also as a matrix of one
// column, is cut into runs of 64. Every other gradient is cut into runs of 4096 consecutive
// elements. The last run may be shorter. Blocks count row of blocks by row of blocks, from left to
// right; positions within a block count row by row. Nothing here allocates; everything is [any].
#pragma once

#include <kernels/prefetch.hpp>
#include <kernels/stream.hpp>
#include <penstock/views.hpp>

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace penstock::sdk {

inline constexpr uint64_t kBlockSide = 64;
inline constexpr uint64_t kBlockSize = kBlockSide * kBlockSide;
// Biases and weights of norms are no longer. A longer vector is many gradients in one, of which
// runs of 64 would send nearly everything.
inline constexpr uint64_t kLongestVector = 65536;

// One block of an item. A run has one row.
struct Block {
  uint64_t first;   // the element of the item at which the block begins
  uint64_t rows;    // at most 64
  uint64_t cols;    // at most 64; of a run at most 4096
  uint64_t stride;  // elements of the item from one row of the block to the next

  uint64_t size() const { return rows * cols; }
  bool is_run() const { return rows == 1; }
  // The element of the item at `position` < size().
  uint64_t element(uint32_t position) const {
    if (is_run()) return first + position;
    const uint32_t width = static_cast<uint32_t>(cols);
    const uint32_t row = width == kBlockSide ? position / kBlockSide : position / width;
    return first + row * stride + (position - row * width);
  }
  // Copies the block's elements out of `item` to target[size()].
  void load(const float* item, float* target) const {
    for (uint64_t row = 0; row < rows; ++row)
      std::memcpy(target + row * cols, item + first + row * stride, cols * sizeof(float));
  }
  // Fetches the block's elements of `item`, of which a processor would not foresee the next row.
  void prefetch(const float* item) const {
    for (uint64_t row = 0; row < rows; ++row)
      for (uint64_t col = 0; col < cols; col += 16)  // a cache line
        kernels::prefetch_line(item + first + row * stride + col);
  }
  // Copies source[size()] to the block's elements of `item`; is_streamed: past the caches, and
  // kernels::end_stream() follows the last block.
  void store(const float* source, float* item, bool is_streamed = false) const {
    for (uint64_t row = 0; row < rows; ++row) {
      float* const target = item + first + row * stride;
      if (is_streamed)
        kernels::stream(target, source + row * cols, cols);
      else
        std::memcpy(target, source + row * cols, cols * sizeof(float));
    }
  }
};

// The elements of a block in their order: runs of 64, `stride` floats from one run to the next.
// With another stride than 64 there are whole runs only.
struct BlockElements {
  const float* first;
  uint64_t stride;

  // Copies the first n elements to target[n].
  void copy(uint64_t n, float* target) const {
    for (uint64_t i = 0; i < n; i += kBlockSide)
      std::memcpy(target + i, first + i / kBlockSide * stride,
                  std::min(kBlockSide, n - i) * sizeof(float));
  }
};

// The blocks of an item. An item that is a part of a gradient has the blocks that the whole
// gradient has there, because cuts lie at multiples of alignment().
class Blocks {
 public:
  // The number of dimensions is that of the whole gradient: item.n_dims() of a part is 1.
  explicit Blocks(const Item& item)
      : Blocks(item.numel(), item.c().grad.n_dims == 2 && item.cols() > 1 ? item.cols() : 0,
               is_vector(item) ? kBlockSide : kBlockSize) {}
  // `cols`: columns of the matrix, whose rows are whole; 0: the elements are cut into runs of `run`
  // elements.
  Blocks(uint64_t numel, uint64_t cols, uint64_t run = kBlockSize)
      : numel_(numel),
        rows_(cols == 0 ? 0 : numel / cols),
        cols_(cols),
        across_(cols == 0 ? 1 : (cols + kBlockSide - 1) / kBlockSide),
        run_(run) {}

  uint64_t count() const {
    return cols_ == 0 ? (numel_ + run_ - 1) / run_
                      : (rows_ + kBlockSide - 1) / kBlockSide * across_;
  }
  Block operator[](uint64_t index) const {
    if (cols_ == 0) {
      const uint64_t first = index * run_;
      return {first, 1, std::min(run_, numel_ - first), run_};
    }
    const uint64_t row = index / across_ * kBlockSide, col = index % across_ * kBlockSide;
    return {row * cols_ + col, std::min(kBlockSide, rows_ - row), std::min(kBlockSide, cols_ - col),
            cols_};
  }
  // Whether block `index` is the first of a row of blocks.
  bool begins_row(uint64_t index) const { return index % across_ == 0; }

  // The number of elements between places where a gradient may be cut.
  uint64_t alignment() const { return cols_ == 0 ? run_ : kBlockSide * cols_; }

  // The number of elements that are chosen of a block of these blocks, of `size` > 0, if `k` <=
  // 4096 are chosen of a whole block of 4096: size * k / 4096, rounded, at least 1. Of a run of a
  // vector k are chosen, or all if it has fewer.
  uint64_t kept(uint64_t size, uint64_t k) const {
    if (cols_ == 0 && run_ == kBlockSide) return std::min(size, k);
    return std::max<uint64_t>(1, (size * k + kBlockSize / 2) / kBlockSize);
  }
  // The same of all blocks together.
  uint64_t kept(uint64_t k) const {
    uint64_t all = 0;
    for (uint64_t i = 0; i < count(); ++i) all += kept((*this)[i].size(), k);
    return all;
  }

 private:
  // Looks at the whole gradient if the item is a part of it.
  static bool is_vector(const Item& item) {
    const penstock_tensor& whole = item.c().grad;
    if (whole.n_dims > 2 || (whole.n_dims == 2 && item.cols() > 1)) return false;
    uint64_t numel = 1;
    for (uint64_t i = 0; i < whole.n_dims; ++i) numel *= static_cast<uint64_t>(whole.shape[i]);
    return numel <= kLongestVector;
  }

  uint64_t numel_;
  uint64_t rows_;
  uint64_t cols_;
  uint64_t across_;  // blocks in a row of blocks
  uint64_t run_;     // elements of a run
};

}  // namespace penstock::sdk
