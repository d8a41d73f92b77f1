// Factors that low-rank methods carry from step to step, on a device. The functions use the random
// numbers and rules of ../factor.hpp and the orthogonalisation of low_rank.hpp. Contract of all
// functions: workspace.hpp. Ranks must be 1 to 256; other ranks are refused.
//
// The device itself decides whether a factor is all zero or has lost a column: all kernels are
// queued, and a kernel without work returns at once.
#pragma once

#include <kernels/cuda/workspace.hpp>
#include <kernels/factor.hpp>

#include <cstdint>

namespace penstock::kernels::cuda::low_rank {

// Bytes of workspace that are enough for every function here; 0 for a rank that is refused.
uint64_t factor_workspace_bytes(uint64_t rows, uint64_t rank) noexcept;

// Does the work of draw_factor of ../factor.hpp. Eight launches.
[[nodiscard]] int32_t draw_factor(float* factor, uint64_t rows, uint64_t rank,
                                  const FactorSource& source, Workspace workspace,
                                  void* stream) noexcept;

// in_use <- state, or, if state is all zero, a factor of draw_factor. Nine launches.
[[nodiscard]] int32_t use_factor(const float* state, float* in_use, uint64_t rows, uint64_t rank,
                                 const FactorSource& source, Workspace workspace,
                                 void* stream) noexcept;

// state <- the result of renew_factor (../factor.hpp) for `sum`; if `sum` is all zero, the state
// does not change. Seventeen launches.
[[nodiscard]] int32_t keep_factor(const float* sum, float* state, uint64_t rows, uint64_t rank,
                                  const FactorSource& source, Workspace workspace,
                                  void* stream) noexcept;

}  // namespace penstock::kernels::cuda::low_rank
