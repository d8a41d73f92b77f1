// The shape in which ADTopk treats a gradient, and its selection along the second dimension.
#pragma once

#include <kernels/cuda/rows.hpp>
#include <kernels/rows.hpp>
#include <methods/agreed.hpp>
#include <penstock/compressor.hpp>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

namespace adtopk {

// max(1, floor(share * n)), at most n: the method's own rounding. The small term keeps 0.01 of 700
// at 7 although 0.01 is no binary fraction.
inline uint64_t kept_of(uint64_t n, double share) {
  const auto wanted = static_cast<uint64_t>(std::floor(share * static_cast<double>(n) + 1e-9));
  return std::min(n, std::max<uint64_t>(wanted, 1));
}

// A gradient as `blocks` matrices of length x lanes, one after the other. Each lane (a column)
// sends `kept` of its `length` entries. Each row of a matrix is a block with one lane. Each output
// channel of a convolution's weight is a block with one lane for each place of the window. A vector
// is one block with one lane.
struct Axis {
  uint64_t blocks = 1;
  uint64_t length = 0;
  uint64_t lanes = 1;
  uint64_t kept = 0;  // entries sent of each lane
  uint64_t chosen() const { return blocks * lanes * kept; }
};

inline Axis axis_of(const penstock_item& item, double density) {
  Axis axis;
  axis.length = item.numel;
  if (item.n_dims >= 2 && item.numel > 0) {
    axis.blocks = static_cast<uint64_t>(item.shape[0]);
    axis.length = static_cast<uint64_t>(item.shape[1]);
    axis.lanes = item.numel / (axis.blocks * axis.length);
  }
  axis.kept = axis.length == 0 ? 0 : kept_of(axis.length, density);
  return axis;
}

// Parts of the scratch of a selection along an axis, each aligned to 64 bytes.
struct AxisScratch {
  AxisScratch(const Axis& axis, const penstock::kernels::Workers& workers) {
    const uint64_t rows = axis.lanes == 1 ? axis.blocks : axis.lanes;
    select = penstock::kernels::select_rows_scratch_bytes(axis.length,
                                                          workers.shares(rows, axis.length));
    if (axis.lanes == 1) return;
    turned = penstock::sdk::whole_lines(axis.length * axis.lanes * sizeof(float));
    marks = penstock::sdk::whole_lines((axis.length * axis.lanes + 63) / 64 * sizeof(uint64_t));
  }
  uint64_t bytes() const { return select + turned + marks; }
  uint64_t select = 0;
  uint64_t turned = 0;  // one block with its lanes as rows
  uint64_t marks = 0;   // one bit for each entry of a block
};

// Writes the positions in x of the selected entries, ascending, to `indices`, which must have room
// for axis.chosen() positions.
inline void select_along(const Axis& axis, const float* x, uint32_t* indices, char* scratch,
                         const penstock::kernels::Execution& on) {
  const AxisScratch parts(axis, on.workers);
  const penstock::kernels::SelectScratch room{scratch, parts.select};
  if (axis.lanes == 1) {
    penstock::kernels::select_rows(x, axis.blocks, axis.length, axis.kept, indices, nullptr, room,
                                   on);
    return;
  }
  const uint64_t size = axis.length * axis.lanes;
  const uint64_t words = (size + 63) / 64;
  const uint64_t of_block = axis.lanes * axis.kept;
  auto* const turned = reinterpret_cast<float*>(scratch + parts.select);
  auto* const marks = reinterpret_cast<uint64_t*>(scratch + parts.select + parts.turned);
  for (uint64_t block = 0; block < axis.blocks; ++block) {
    const float* const from = x + block * size;
    uint32_t* const chosen = indices + block * of_block;
    for (uint64_t i = 0; i < axis.length; ++i)
      for (uint64_t lane = 0; lane < axis.lanes; ++lane)
        turned[lane * axis.length + i] = from[i * axis.lanes + lane];
    penstock::kernels::select_rows(turned, axis.lanes, axis.length, axis.kept, chosen, nullptr,
                                   room, on);
    // Lanes interleave in memory, but indices must ascend in a payload. So the positions are sorted
    // by setting one bit for each.
    std::memset(marks, 0, words * sizeof(uint64_t));
    for (uint64_t j = 0; j < of_block; ++j) {
      const uint64_t lane = chosen[j] / axis.length, i = chosen[j] % axis.length;
      const uint64_t position = i * axis.lanes + lane;
      marks[position / 64] |= uint64_t{1} << (position % 64);
    }
    uint64_t n = 0;
    for (uint64_t word = 0; word < words; ++word)
      for (uint64_t rest = marks[word]; rest != 0; rest &= rest - 1)
        chosen[n++] = static_cast<uint32_t>(block * size + word * 64 +
                                            static_cast<uint64_t>(std::countr_zero(rest)));
  }
}

inline penstock::kernels::cuda::Lanes lanes_of(const Axis& axis) {
  return {axis.blocks, axis.length, axis.lanes};
}

}  // namespace adtopk
