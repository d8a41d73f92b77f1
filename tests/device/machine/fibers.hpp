// Runs a kernel: its blocks one after the other or in pairs, the threads of each block as fibers.
// The variables of a kernel's thread are static, so only one thread of the process may be in here
// at once.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>

namespace penstock::simulated {

// From now on the orders of threads and blocks depend on `seed`.
void seed_order_of_threads(uint64_t seed);

// The simulation supports only one dimension, and whole warps.
bool grid_is_valid(dim3 grid, dim3 block);
void run_grid(dim3 grid, dim3 block, const std::function<void()>& thread);

}  // namespace penstock::simulated
