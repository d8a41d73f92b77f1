// Selection row by row on a device, with the results of ../rows.hpp: the k entries of largest
// magnitude of each row of a matrix. Contract: workspace.hpp.
#pragma once

#include <kernels/cuda/workspace.hpp>

#include <cstdint>

namespace penstock::kernels::cuda {

// For each row of x[rows x width], rows * width < 2^32 and k <= width: writes the positions in x of
// its k largest entries, ascending, and their values. Between equal magnitudes the lower index is
// chosen, and a NaN counts as magnitude zero. Both outputs have rows * k entries; `values` may be
// null. One block works on a row, so for few very wide rows select_largest is better. It needs no
// workspace.
[[nodiscard]] int32_t select_rows(const float* x, uint64_t rows, uint64_t width, uint64_t k,
                                  uint32_t* indices, float* values, void* stream) noexcept;

// `blocks` matrices of length x lanes, one after the other, with fewer than 2^32 entries in all.
struct Lanes {
  uint64_t blocks;
  uint64_t length;
  uint64_t lanes;
};

// Selects k <= length entries in each lane, which is a column of one of the matrices. Writes the
// positions in x of the chosen entries of all lanes, ascending: blocks * lanes * k positions.
[[nodiscard]] int32_t select_lanes(const float* x, const Lanes& lanes, uint64_t k,
                                   uint32_t* indices, Workspace workspace, void* stream) noexcept;
uint64_t select_lanes_workspace_bytes(const Lanes& lanes, uint64_t k) noexcept;

}  // namespace penstock::kernels::cuda
