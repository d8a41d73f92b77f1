// The door of the simulated CUDA device for tests: what it shall do, what it has seen. See
// README.md for how it behaves. Every function is [any], and takes the lock that calls of the
// device take.
//
// One state for the whole process, whoever uses it: libpenstock_device_simulated.so holds it.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <vector>

#pragma GCC visibility push(default)

namespace penstock::simulated {

// ---- What it is ----

enum class Driver { kPresent, kTooOld, kMissing };

struct Settings {
  uint64_t seed = 1;  // of the order in which work runs
  int devices = 2;
  uint64_t memory_bytes = uint64_t{4} << 30;  // of each device
  Driver driver = Driver::kPresent;
  // How likely a call that queues work is to run some at once, of any stream. 0: work runs as late
  // as can be. More finds what a host does too late, such as filling memory whose copy is queued.
  double early = 0;
  // Memory of devices is open to the host, for libraries that move it. Who else touches it is not
  // found then; memory that was freed stays closed.
  bool open_to_hosts = false;
  // Misuse ends the program with its sentence, instead of being kept for reports().
  bool abort_on_misuse = false;
  // Sums of NCCL's twin are made in the order of ranks, so that they have the bits of the CPU's.
  // Else in one that goes by the element and the size of the message: NCCL promises none.
  bool sums_by_rank = true;
};

// As at the start of the process, but for `settings`: all memory, streams, events, work, reports,
// counts and orders for faults are gone. No call may be under way.
//
// At the start: Settings{}, but PENSTOCK_SIMULATED_DEVICES and PENSTOCK_SIMULATED_SEED set these
// two, for processes that have nobody to call this.
void reset(const Settings& settings = {});

// What work takes by the clocks of streams, which only cudaEventElapsedTime reads: so long for each
// launch, and for each copy or fill.
inline constexpr double kLaunchUs = 10, kCopyUs = 4;

// ---- Faults to order ----

// What can fail and is counted; a call belongs to one of them.
enum class Call {
  kAllocate,      // cudaMalloc
  kFree,          // cudaFree
  kHostAllocate,  // cudaHostAlloc
  kHostFree,      // cudaFreeHost
  kCopy,          // cudaMemcpyAsync, cudaMemcpy
  kFill,          // cudaMemsetAsync, cudaMemset
  kLaunch,        // cudaLaunchKernelEx
  kLoad,          // cudaFuncGetAttributes
  kHostFunction,  // cudaLaunchHostFunc
  kStreamCreate,
  kStreamDestroy,
  kStreamWait,  // cudaStreamSynchronize
  kStreamQuery,
  kStreamWaitEvent,
  kEventCreate,
  kEventDestroy,
  kEventRecord,
  kEventQuery,
  kEventWait,  // cudaEventSynchronize
  kEventElapsed,
  kDeviceWait,  // cudaDeviceSynchronize
  kProperties,  // cudaGetDeviceProperties, priorities, cudaMemGetInfo, cudaPointerGetAttributes
  kCurrent,     // cudaSetDevice, cudaGetDevice, and the driver's of contexts
  kCount,       // cudaGetDeviceCount, versions
  kGraph,       // captures and graphs
  kNccl,        // all of NCCL; an error ordered for it comes as ncclUnhandledCudaError
  kEnd
};

// The `nth` call of this kind from now, 1 for the next, does nothing and returns `error`.
void fail_call(Call call, uint64_t nth, int32_t error);
// The `nth` piece of work of a kind that runs from now on (kCopy, kFill, kLaunch) fails, and with
// it its device: as after an illegal address, all later calls on that device return `error`.
void fail_work(Call kind, uint64_t nth, int32_t error);
// All later calls on the device return `error`; its work never runs. cudaErrorLaunchFailure is 719.
void lose_device(int device, int32_t error = 719);
// As many bytes as are held now, and `bytes` more, are all that the device has.
void leave_memory(int device, uint64_t bytes);

// ---- What it has seen ----

enum class Misuse {
  kWaitForNothing,       // a stream waits for an event that was never recorded
  kStreamDestroyedBusy,  // destroyed with work still queued
  kEventDestroyedBusy,   // destroyed while queued work waits for it
  kHostMemoryFreedBusy,  // pinned memory freed while a queued copy uses it
  kMemoryWrittenAround,  // found when it is freed
  kDeadHandle,           // a stream, event or graph that is destroyed or never was, a pointer freed
  kWrongPointer,         // of a copy: not where its kind says, or longer than its allocation
  kCommunicatorDestroyedBusy,  // of NCCL, with work still queued
  kCommunicatorUsedEarly,      // one that does not block, before its last operation was on its way
  kRanksDiffer,                // operations of NCCL whose order or arguments differ between ranks
};
struct Report {
  Misuse misuse;
  std::string sentence;
};
std::vector<Report> reports();

// What was made and not given back yet, a sentence for each: memory, streams, events, graphs.
std::vector<std::string> leaks();

uint64_t calls(Call call);
uint64_t calls_of_this_thread(Call call);
uint64_t held_bytes(int device);

// Devices that have a context of this process: some thread made them current (cudaSetDevice, since
// CUDA 12), or called what needs one while it had none. On a real device each costs some 0.5 GB.
std::set<int> contexts();

// Bytes of copies that were queued, by where they go; fills are none.
struct Copied {
  uint64_t to_device = 0, to_host = 0, on_device = 0;
};
Copied copied();

// How often a host waited for the device, by the call that made it wait. A step's path has none.
struct Waits {
  uint64_t for_stream = 0, for_event = 0, for_device = 0;
  uint64_t for_copy = 0;           // cudaMemcpy
  uint64_t for_free = 0;           // cudaFree, cudaFreeHost
  uint64_t for_pageable_copy = 0;  // cudaMemcpyAsync with host memory that is not pinned
  uint64_t for_load = 0;           // a launch of a kernel that was not loaded on the device
  uint64_t total() const {
    return for_stream + for_event + for_device + for_copy + for_free + for_pageable_copy + for_load;
  }
};
Waits waits();
Waits waits_of_this_thread();
std::map<std::thread::id, Waits> waits_by_thread();

// Work that is queued and has not run, on all streams.
uint64_t queued();

}  // namespace penstock::simulated

#pragma GCC visibility pop
