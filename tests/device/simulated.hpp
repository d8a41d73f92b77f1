// The interface of the simulated CUDA device for tests: settings, faults and observations.
// README.md describes the device's behaviour. Every function is [any], and takes the lock of the
// device's calls.
//
// The state exists once per process, in libpenstock_device_simulated.so.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <vector>

#pragma GCC visibility push(default)

namespace penstock::simulated {

// ---- Settings ----

enum class Driver { kPresent, kTooOld, kMissing };

struct Settings {
  uint64_t seed = 1;  // of the order in which work runs
  int devices = 2;
  uint64_t memory_bytes = uint64_t{4} << 30;  // of each device
  Driver driver = Driver::kPresent;
  // The probability that a call which queues work also runs some queued work, of any stream. At 0
  // work runs as late as possible. A larger value finds host code that acts too late, for example
  // code that fills memory whose copy is already queued.
  double early = 0;
  // The memory of devices is open to the host, for libraries that move it. Then the simulation does
  // not find wrong accesses by other code. Freed memory stays closed.
  bool open_to_hosts = false;
  // A misuse ends the program with its message. Otherwise reports() returns the message.
  bool abort_on_misuse = false;
  // NCCL's twin adds in the order of ranks, so that its sums have the bits of the CPU's sums.
  // Otherwise the order depends on the element and on the size of the message, because NCCL
  // promises no order.
  bool sums_by_rank = true;
};

// Returns to the state at the start of the process, with `settings`: memory, streams, events, work,
// reports, counts and ordered faults are gone. No call may be under way.
//
// The process starts with Settings{}. For processes that cannot call reset(), the variables
// PENSTOCK_SIMULATED_DEVICES and PENSTOCK_SIMULATED_SEED set the number of devices and the seed.
void reset(const Settings& settings = {});

// The duration of each launch, and of each copy or fill, by the clocks of streams. Only
// cudaEventElapsedTime reads these clocks.
inline constexpr double kLaunchUs = 10, kCopyUs = 4;

// ---- Faults to order ----

// The kinds of calls that can fail and are counted. A call belongs to one kind.
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
  kCurrent,     // cudaSetDevice, cudaGetDevice, and the driver's calls for contexts
  kCount,       // cudaGetDeviceCount, versions
  kGraph,       // captures and graphs
  kNccl,        // every call of NCCL; an ordered error comes as ncclUnhandledCudaError
  kEnd
};

// The `nth` call of this kind from now does nothing and returns `error`. 1 is the next call.
void fail_call(Call call, uint64_t nth, int32_t error);
// The `nth` piece of work of a kind (kCopy, kFill, kLaunch) that runs from now on fails. Its device
// fails too: as after an illegal address, all later calls on that device return `error`.
void fail_work(Call kind, uint64_t nth, int32_t error);
// All later calls on the device return `error`; its work never runs. cudaErrorLaunchFailure is 719.
void lose_device(int device, int32_t error = 719);
// Limits the device's memory to the bytes that are held now plus `bytes`.
void leave_memory(int device, uint64_t bytes);

// ---- Observations ----

enum class Misuse {
  kWaitForNothing,       // a stream waits for an event that was never recorded
  kStreamDestroyedBusy,  // a stream destroyed with work still queued
  kEventDestroyedBusy,   // an event destroyed while queued work waits for it
  kHostMemoryFreedBusy,  // pinned memory freed while a queued copy uses it
  kMemoryWrittenAround,  // found when the memory is freed
  kDeadHandle,           // a stream, event or graph that is destroyed or never existed, or a freed
                         // pointer
  kWrongPointer,         // a pointer of a copy: not in the memory that the kind of the copy says,
                         // or beyond its allocation
  kCommunicatorDestroyedBusy,  // a communicator of NCCL, with work still queued
  kCommunicatorUsedEarly,      // a non-blocking communicator, used before its last operation was on
                               // its way
  kRanksDiffer,                // operations of NCCL whose order or arguments differ between ranks
};
struct Report {
  Misuse misuse;
  std::string sentence;
};
std::vector<Report> reports();

// One sentence for each thing that was made and not given back: memory, streams, events, graphs.
std::vector<std::string> leaks();

uint64_t calls(Call call);
uint64_t calls_of_this_thread(Call call);
uint64_t held_bytes(int device);

// Devices with a context of this process. A context is made if a thread makes the device current
// (cudaSetDevice, since CUDA 12), or calls a function that needs a context. On a real device each
// context costs some 0.5 GB.
std::set<int> contexts();

// Bytes of queued copies, by destination. Fills are not counted.
struct Copied {
  uint64_t to_device = 0, to_host = 0, on_device = 0;
};
Copied copied();

// How often a host thread waited for the device, by the call that waited. A step must never wait.
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
