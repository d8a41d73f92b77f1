// The contract that all CUDA kernels share.
//
// Each function queues work on a stream and returns without waiting. No function allocates,
// synchronises or queries the device, so all functions may be captured in a CUDA graph and
// replayed. Unless a function says otherwise:
//  - pointers are to device memory, aligned to their elements and no more. The memory belongs to
//    the caller and must be valid until the work is done. Structs are read during the call.
//  - `stream` is a cudaStream_t of the current device, carried as in penstock_exec; null is the
//    legacy default stream.
//  - the next call on a stream may read the results of an earlier call on it. Two calls that may
//    run concurrently must not share a workspace.
//  - numbers that an earlier kernel may have found (thresholds, scales, steps) are read from device
//    memory when the work runs, so that no host has to wait for them.
//  - the result is 0 or the number of a CUDA error (cudaGetErrorName gives its name): an error of
//    the launch, or cudaErrorInvalidValue for arguments that break the contract, before any work is
//    queued. An error of the work itself appears at the next synchronisation, as always in CUDA.
//
// On every device, results have the bits of the CPU kernels with equal names, except sums in
// floating point, which have their own order (reduce.hpp, low_rank.hpp). All functions are [any].
#pragma once

#include <cstdint>

namespace penstock::kernels::cuda {

// Scratch memory of a call on the device: at least the bytes that its query function returns,
// aligned to 64, contents undefined. The caller may reuse it when the work is done.
struct Workspace {
  void* data;
  uint64_t bytes;
};

}  // namespace penstock::kernels::cuda
