#include <wire/blocks.hpp>

#include <kernels/on_code_path.hpp>

#include <algorithm>
#include <cstring>

namespace penstock::wire {
namespace {

constexpr unsigned kBlockBits = 16;
constexpr uint64_t kStride = 64;  // positions that are compared together

uint64_t count_blocks(uint64_t n) {
  return ((n - 1) >> kBlockBits) + 1;
}

// Writes the counts of all blocks but the last to `counts`, and offsets to `offsets`. In a stride
// that leaves a block, the positions below the block's end are counted.
template <typename Position>
void write_body(const Position* p, uint64_t count, uint64_t n_blocks, unsigned char* counts,
                unsigned char* offsets, kernels::CodePath path) {
  // 256-bit registers pack with one instruction, 512-bit registers need two.
  const auto packs = std::min(path, kernels::CodePath::kAvx2);
  kernels::on_code_path(packs, [=]() PENSTOCK_LOOP {
    uint64_t block = 0, begin = 0, at = 0;
    const auto end_block = [&](uint64_t end) PENSTOCK_LOOP {
      const auto found = static_cast<uint32_t>(end - begin);
      std::memcpy(counts + 4 * block, &found, sizeof found);
      begin = end;
      ++block;
    };
    const auto write_offset = [&](uint64_t j) PENSTOCK_LOOP {
      const auto offset = static_cast<uint16_t>(p[j]);
      std::memcpy(offsets + 2 * j, &offset, sizeof offset);
    };
    for (; at + kStride <= count; at += kStride) {
      for (uint64_t i = 0; i < kStride; ++i) write_offset(at + i);
      const uint64_t reached = std::min<uint64_t>(p[at + kStride - 1] >> kBlockBits, n_blocks - 1);
      while (block < reached) {
        const auto last = static_cast<Position>((block << kBlockBits) | 0xffffu);
        Position below = 0;
        for (uint64_t i = 0; i < kStride; ++i) below += static_cast<Position>(p[at + i] <= last);
        end_block(at + below);
      }
    }
    for (; at < count; ++at) {
      write_offset(at);
      while (block < n_blocks - 1 && block < p[at] >> kBlockBits) end_block(at);
    }
    while (block < n_blocks - 1) end_block(count);
  });
}

// Widens offsets of one block. Returns false if they do not ascend.
template <typename Position>
bool widen(const unsigned char* offsets, uint64_t count, Position base, Position* positions,
           kernels::CodePath path) {
  return kernels::on_code_path(path, [=]() PENSTOCK_LOOP {
    uint16_t falls = 0;
    for (uint64_t j = 0; j < count; ++j) {
      uint16_t offset;
      std::memcpy(&offset, offsets + 2 * j, sizeof offset);
      positions[j] = base + offset;
    }
    for (uint64_t j = 1; j < count; ++j) {
      uint16_t before, offset;
      std::memcpy(&before, offsets + 2 * j - 2, sizeof before);
      std::memcpy(&offset, offsets + 2 * j, sizeof offset);
      falls |= static_cast<uint16_t>(offset <= before);
    }
    return falls == 0;
  });
}

}  // namespace

template <typename Position>
Fit Blocks<Position>::fit(std::span<const Position> positions, uint64_t n,
                          kernels::CodePath) noexcept {
  return {0, 4 * (count_blocks(n) - 1) + 2 * positions.size()};
}

template <typename Position>
void Blocks<Position>::write(std::span<const Position> positions, uint64_t n, int16_t,
                             unsigned char* body, kernels::CodePath path) noexcept {
  const Position* p = positions.data();
  const uint64_t count = positions.size(), n_blocks = count_blocks(n);
  write_body(p, count, n_blocks, body, body + 4 * (n_blocks - 1), path);
}

template <typename Position>
std::string Blocks<Position>::open(const Section& section, uint64_t n, kernels::CodePath path) {
  n_ = n;
  n_blocks_ = count_blocks(n);
  path_ = path;
  const uint64_t table = 4 * (n_blocks_ - 1);
  if (section.header.parameter != 0 || section.body.size() < table ||
      section.body.size() - table != 2 * section.header.count)
    return sentence("has ", section.body.size(), " bytes with parameter ", section.header.parameter,
                    " for ", section.header.count, " positions in ", n_blocks_, " blocks");
  counts_ = section.body.data();
  offsets_ = counts_ + table;
  behind_ = section.header.count;
  block_ = ~uint64_t{0};
  return {};
}

// Goes to the next block that is not empty; there must be one.
template <typename Position>
std::string Blocks<Position>::next_block() {
  for (left_ = 0; left_ == 0;) {
    ++block_;
    left_ = behind_;
    if (block_ + 1 == n_blocks_) break;
    uint32_t count;
    std::memcpy(&count, counts_ + 4 * block_, sizeof count);
    if (count > behind_)
      return sentence("claims ", count, " positions in block ", block_, ", where ", behind_,
                      " are left");
    left_ = count;
  }
  behind_ -= left_;
  lowest_ = 0;
  return {};
}

template <typename Position>
std::string Blocks<Position>::take(std::span<Position> slice) {
  while (!slice.empty()) {
    if (left_ == 0) {
      std::string refused = next_block();
      if (!refused.empty()) return refused;
    }
    const uint64_t some = std::min<uint64_t>(left_, slice.size());
    const auto base = static_cast<Position>(block_ << kBlockBits);
    const bool ascend = widen(offsets_, some, base, slice.data(), path_);
    if (!ascend || slice[0] - base < lowest_ || slice[some - 1] >= n_)
      return sentence("has offsets in block ", block_, " that do not ascend, or leave ", n_,
                      " elements");
    lowest_ = static_cast<uint32_t>(slice[some - 1] - base) + 1;
    offsets_ += 2 * some;
    left_ -= some;
    slice = slice.subspan(some);
  }
  return {};
}

template class Blocks<uint32_t>;
template class Blocks<uint64_t>;

}  // namespace penstock::wire
