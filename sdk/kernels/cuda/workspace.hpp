// What the contracts of all CUDA kernels share.
//
// Each function queues work on a stream and returns without waiting; nothing here allocates,
// synchronises or asks the device anything, so all of it may be captured in a CUDA graph and
// replayed. Unless a function says otherwise:
//  - pointers are to device memory, aligned to their elements and no more, and stay the caller's;
//    they must be valid until the work is done. Structs are read during the call.
//  - `stream` is a cudaStream_t of the current device, carried as in penstock_exec; null is the
//    legacy default stream.
//  - what one call leaves in memory the next call on the same stream may read. Two calls that may
//    run at the same time must not share a workspace.
//  - numbers that an earlier kernel may have found (thresholds, scales, steps) are read from device
//    memory when the work runs, so that no host has to wait for them.
//  - the result is 0 or the number of a CUDA error (cudaGetErrorName tells its name): of the
//  launch,
//    or cudaErrorInvalidValue for arguments that break the contract, before anything was queued. An
//    error of the work itself shows at the next synchronisation, as everywhere in CUDA.
//
// Results have the bits of the CPU's kernels of the same name, whatever the device, except sums in
// floating point, which have an order of their own (reduce.hpp, low_rank.hpp). All functions are
// [any].
#pragma once

#include <cstdint>

namespace penstock::kernels::cuda {

// Device memory that a call works in: at least the bytes that its query function says, aligned to
// 64, contents undefined. Free again when the work is done.
struct Workspace {
  void* data;
  uint64_t bytes;
};

}  // namespace penstock::kernels::cuda
