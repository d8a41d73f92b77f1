// Entries of one sign that travel as their positions and one mean, on a device: what sign_mean.hpp
// of ../../methods does on the CPU. Contract: workspace.hpp. Sums of such payloads: sparse_sum.hpp.
#pragma once

#include <kernels/cuda/sparse_values.hpp>

#include <cstdint>

namespace penstock::kernels::cuda {

// magnitudes[i] = |x[i]| where x[i] has the sign, else 0.
[[nodiscard]] int32_t magnitudes_of_sign(const float* x, uint64_t n, bool negative,
                                         float* magnitudes, void* stream) noexcept;

// *mean = *sum over the number of chosen entries, as float32 and with the sign; 0 for none. Where
// `taken`, it is taken out of each of them. chosen.capacity is at least 1.
[[nodiscard]] int32_t take_mean(const ChosenEntries& chosen, const double* sum, bool negative,
                                bool taken, float* mean, void* stream) noexcept;

}  // namespace penstock::kernels::cuda
