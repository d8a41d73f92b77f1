// Factors that low-rank methods carry from step to step, on a device: what ../factor.hpp does on
// the CPU, with the same random numbers and the same rules, and the orthogonalisation of
// low_rank.hpp. Contract of all functions: workspace.hpp; ranks of 1 to 256, others are refused.
//
// What the CPU decides by a look at a factor, whether it is all zero or has lost a column, the
// device decides by itself: everything is queued, and what has no work returns at once.
#pragma once

#include <kernels/cuda/workspace.hpp>
#include <kernels/factor.hpp>

#include <cstdint>

namespace penstock::kernels::cuda::low_rank {

// Enough for every function here; 0 for a rank that is refused.
uint64_t factor_workspace_bytes(uint64_t rows, uint64_t rank) noexcept;

// As draw_factor of ../factor.hpp. Eight launches.
[[nodiscard]] int32_t draw_factor(float* factor, uint64_t rows, uint64_t rank,
                                  const FactorSource& source, Workspace workspace,
                                  void* stream) noexcept;

// in_use <- state, or, where that is all zero, a factor as draw_factor makes it. Nine launches.
[[nodiscard]] int32_t use_factor(const float* state, float* in_use, uint64_t rows, uint64_t rank,
                                 const FactorSource& source, Workspace workspace,
                                 void* stream) noexcept;

// state <- what renew_factor of ../factor.hpp makes of `sum`; where that is all zero the state
// stays as it is. Seventeen launches.
[[nodiscard]] int32_t keep_factor(const float* sum, float* state, uint64_t rows, uint64_t rank,
                                  const FactorSource& source, Workspace workspace,
                                  void* stream) noexcept;

}  // namespace penstock::kernels::cuda::low_rank
