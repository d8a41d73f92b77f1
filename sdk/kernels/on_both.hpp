// Marks a function that the CPU and kernels of CUDA call alike but that is no constant expression:
// one that calls a logarithm, say. What is constexpr needs no mark.
#pragma once

#if defined(__CUDACC__)
#define PENSTOCK_ON_BOTH __host__ __device__
#else
#define PENSTOCK_ON_BOTH
#endif
