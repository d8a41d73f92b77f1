// Marks a function that both the CPU and CUDA kernels call but that cannot be constexpr, for
// example because it calls a logarithm. A constexpr function needs no mark.
#pragma once

#if defined(__CUDACC__)
#define PENSTOCK_ON_BOTH __host__ __device__
#else
#define PENSTOCK_ON_BOTH
#endif
