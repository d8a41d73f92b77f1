// Positions in blocks of 65536: the number of positions in each block, and their 16-bit offsets.
// Almost free to write and read, half the size of raw: for links on which bytes are cheap.
#pragma once

#include <wire/raw.hpp>

namespace penstock::wire {

// Body: for each block but the last its count in 32 bits, then all offsets. The interface of Raw.
template <typename Position>
class Blocks {
 public:
  static constexpr const char* kName = "blocks";
  static Fit fit(std::span<const Position> positions, uint64_t n, kernels::CodePath path) noexcept;
  static void write(std::span<const Position> positions, uint64_t n, int16_t parameter,
                    unsigned char* body, kernels::CodePath path) noexcept;

  std::string open(const Section& section, uint64_t n, kernels::CodePath path);
  std::string take(std::span<Position> slice);

 private:
  std::string next_block();

  const unsigned char* counts_ = nullptr;
  const unsigned char* offsets_ = nullptr;
  uint64_t n_ = 0;
  uint64_t n_blocks_ = 0;
  uint64_t block_ = 0;   // the current block
  uint64_t left_ = 0;    // positions left in it
  uint64_t behind_ = 0;  // positions of later blocks
  uint32_t lowest_ = 0;  // least value of the next offset
  kernels::CodePath path_{};
};

}  // namespace penstock::wire
