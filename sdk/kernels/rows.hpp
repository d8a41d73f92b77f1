// Selection row by row: the k entries of largest magnitude of each row of a matrix.
//
// The order is that of select.hpp on every code path: greater magnitude first, between equal
// magnitudes the lower index; a NaN counts as magnitude zero. Each row is read from memory once and
// selected while it is in the cache. No function allocates; all functions are [any].
#pragma once

#include <kernels/execution.hpp>
#include <kernels/select.hpp>

namespace penstock::kernels {

// Bytes of scratch, aligned to 64, for rows of this width and `n_threads` threads.
uint64_t select_rows_scratch_bytes(uint64_t width, uint32_t n_threads = 1) noexcept;

// For each row of x[rows x width], rows * width < 2^32 and k <= width: writes the positions in x of
// its k largest entries, ascending, and their values. Both outputs have rows * k entries; `values`
// may be null. `on.path` should come from select_code_path; the size of the scratch bounds how many
// threads share the rows.
void select_rows(const float* x, uint64_t rows, uint64_t width, uint64_t k, uint32_t* indices,
                 float* values, SelectScratch scratch, const Execution& on) noexcept;

}  // namespace penstock::kernels
