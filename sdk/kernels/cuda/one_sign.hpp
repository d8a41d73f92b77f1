// Entries of one sign that travel as their positions and one mean, on a device; sign_mean.hpp of
// ../../methods is the counterpart on the CPU. Contract: workspace.hpp. sparse_sum.hpp sums such
// payloads.
#pragma once

#include <kernels/cuda/sparse_values.hpp>

#include <cstdint>

namespace penstock::kernels::cuda {

// magnitudes[i] = |x[i]| if x[i] has the sign, else 0.
[[nodiscard]] int32_t magnitudes_of_sign(const float* x, uint64_t n, bool negative,
                                         float* magnitudes, void* stream) noexcept;

// *mean = *sum / the number of chosen entries, as float32 and with the sign; 0 if no entry is
// chosen. If `taken`, the mean is subtracted from each chosen entry. chosen.capacity must be at
// least 1.
[[nodiscard]] int32_t take_mean(const ChosenEntries& chosen, const double* sum, bool negative,
                                bool taken, float* mean, void* stream) noexcept;

}  // namespace penstock::kernels::cuda
