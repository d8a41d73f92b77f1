// The elements of an item, block by block (blocks.hpp). They are compensated on the way.
//
// Two neighbouring blocks are compensated together, row by row. Their results stay in the
// first-level cache until each block has been read; work itself is written past the caches if it is
// large (fold.hpp). With more blocks the results would leave that cache, which takes longer than
// the shorter rows do.
#pragma once

#include <kernels/fold.hpp>
#include <kernels/stream.hpp>
#include <methods/blocks.hpp>

#include <cstring>

namespace penstock::sdk {

// All functions are [step].
class BlockStrips {
 public:
  static constexpr uint64_t scratch_bytes() { return kBlockSide * kMostCols * sizeof(float); }
  // `offset`, a multiple of 64: the first byte of the call's scratch that is free. Without a fold
  // work is read as it is.
  BlockStrips(const Call& call, uint64_t offset, const Item& item, const Blocks& blocks,
              const kernels::Fold* fold, kernels::CodePath path)
      : room_(call.scratch<float>(kBlockSide * kMostCols, offset).data()),
        work_(item.work().data()),
        numel_(item.numel()),
        blocks_(blocks),
        fold_(fold),
        path_(path) {}
  ~BlockStrips() {
    if (fold_ != nullptr) kernels::end_stream();
  }
  BlockStrips(const BlockStrips&) = delete;
  BlockStrips& operator=(const BlockStrips&) = delete;

  // The elements of block `index`, where they lie, or copied to `numbers` if the block is narrow.
  // Blocks are asked for in ascending order, each one once. The elements are valid until the next
  // call.
  BlockElements elements(uint64_t index, float* numbers) {
    const Block block = blocks_[index];
    if (index == end_) begin(index);
    if (fold_ == nullptr && index + 1 < end_) blocks_[index + 1].prefetch(work_);
    const float* const from = elements_ + (block.first - first_);
    if (block.is_run()) return {from, kBlockSide};
    if (block.cols == kBlockSide) return {from, stride_};
    for (uint64_t row = 0; row < block.rows; ++row)
      std::memcpy(numbers + row * block.cols, from + row * stride_, block.cols * sizeof(float));
    return {numbers, kBlockSide};
  }

 private:
  static constexpr uint64_t kMostBlocks = 2;
  static constexpr uint64_t kMostCols = kMostBlocks * kBlockSide;

  // Compensates the strip whose first block is `index`.
  void begin(uint64_t index) {
    const Block block = blocks_[index];
    first_ = block.first;
    stride_ = block.stride;
    elements_ = work_ + first_;
    uint64_t cols = 0;
    for (end_ = index; end_ < blocks_.count() && end_ < index + kMostBlocks; ++end_) {
      if (end_ > index && blocks_.begins_row(end_)) break;
      cols += blocks_[end_].cols;
    }
    if (fold_ == nullptr) return;
    // Rows that lie some 1024 elements behind each other in the order of the strip.
    const uint64_t ahead = block.is_run()
                               ? kernels::kFetchedAhead
                               : (kernels::kFetchedAhead + cols - 1) / cols * block.stride;
    for (uint64_t row = 0; row < block.rows; ++row) {
      float* const target = room_ + row * cols;
      const float* const results = kernels::compensate_tile(
          fold_->from(first_ + row * block.stride), cols, numel_, path_, target, ahead);
      if (results != target) continue;
      elements_ = room_;
      stride_ = cols;
    }
  }

  float* room_;
  const float* work_;
  uint64_t numel_;
  const Blocks& blocks_;
  const kernels::Fold* fold_;
  kernels::CodePath path_;
  // The strip at hand: its elements, and the elements from one of its rows to the next.
  const float* elements_ = nullptr;
  uint64_t stride_ = 0;
  uint64_t first_ = 0;  // the element of the item at which the strip begins
  uint64_t end_ = 0;    // the block behind the strip
};

}  // namespace penstock::sdk
