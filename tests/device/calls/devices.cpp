// Errors, versions, devices, and the current device of a thread.
#include <fmt/format.h>

#include <cstdio>
#include <iterator>
#include <utility>

#include "call.hpp"

namespace penstock::simulated {
namespace {

constexpr int kRuntimeVersion = 12040;
constexpr int kOldDriver = 11040;

constexpr struct {
  cudaError_t error;
  const char *name, *text;
} kErrors[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorInvalidConfiguration, "cudaErrorInvalidConfiguration",
     "invalid configuration of a launch"},
    {cudaErrorInvalidMemcpyDirection, "cudaErrorInvalidMemcpyDirection", "invalid kind of a copy"},
    {cudaErrorInsufficientDriver, "cudaErrorInsufficientDriver",
     "the driver is missing or older than the runtime"},
    {cudaErrorDevicesUnavailable, "cudaErrorDevicesUnavailable", "devices are busy or unavailable"},
    {cudaErrorNoDevice, "cudaErrorNoDevice", "no device was found"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "there is no device of this number"},
    {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid handle"},
    {cudaErrorNotReady, "cudaErrorNotReady", "work is not done yet"},
    {cudaErrorIllegalAddress, "cudaErrorIllegalAddress", "a kernel touched an illegal address"},
    {cudaErrorLaunchFailure, "cudaErrorLaunchFailure", "a kernel failed, or the device is lost"},
    {cudaErrorNotSupported, "cudaErrorNotSupported", "not supported"},
    {cudaErrorStreamCaptureUnsupported, "cudaErrorStreamCaptureUnsupported",
     "not permitted while a stream is captured"},
    {cudaErrorStreamCaptureInvalidated, "cudaErrorStreamCaptureInvalidated",
     "a call that was not permitted has spoiled the capture"},
    {cudaErrorStreamCaptureUnmatched, "cudaErrorStreamCaptureUnmatched",
     "the stream is not captured"},
    {cudaErrorUnknown, "cudaErrorUnknown", "unknown error"}};

const auto& entry_of(cudaError_t error) {
  for (const auto& entry : kErrors)
    if (entry.error == error) return entry;
  return *std::prev(std::end(kErrors));
}

}  // namespace

// After a reset no thread has a context.
ThisThread& this_thread_state() {
  static thread_local ThisThread state;
  if (const uint64_t now = machine().generation(); state.generation != now) {
    state.generation = now;
    state.context = -1;
  }
  return state;
}

int current_device() {
  const ThisThread& thread = this_thread_state();
  return thread.context >= 0 ? thread.context : thread.device;
}

void enter_context(Machine& machine, int device) {
  this_thread_state().context = device;
  machine.journal.note_context(device);
}

cudaError_t refusal(Machine& machine, Call kind, Needs needs) {
  machine.journal.count(kind);
  if (const std::optional<int32_t> error = machine.failing_calls.come(kind))
    return static_cast<cudaError_t>(*error);
  if (needs == Needs::kNothing) return cudaSuccess;
  const cudaError_t error = refusal_of_device(machine);
  if (error == cudaSuccess && needs == Needs::kContext) enter_context(machine, current_device());
  return error;
}

cudaError_t refusal_of_device(const Machine& machine) {
  if (machine.settings.driver != Driver::kPresent) return cudaErrorInsufficientDriver;
  if (machine.devices.empty()) return cudaErrorNoDevice;
  const auto current = static_cast<std::size_t>(current_device());
  if (current >= machine.devices.size()) return cudaErrorInvalidDevice;
  return machine.devices[current].lost;
}

}  // namespace penstock::simulated

using namespace penstock::simulated;

const char* cudaGetErrorName(cudaError_t error) {
  return entry_of(error).name;
}
const char* cudaGetErrorString(cudaError_t error) {
  return entry_of(error).text;
}
cudaError_t cudaGetLastError() {
  return std::exchange(this_thread_state().last_error, cudaSuccess);
}
cudaError_t cudaPeekAtLastError() {
  return this_thread_state().last_error;
}

cudaError_t cudaDriverGetVersion(int* version) {
  return call(
      Call::kCount,
      [&](Machine& machine, Lock&) {
        const Driver driver = machine.settings.driver;
        *version = driver == Driver::kMissing  ? 0
                   : driver == Driver::kTooOld ? kOldDriver
                                               : kRuntimeVersion;
        return cudaSuccess;
      },
      Needs::kNothing);
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = kRuntimeVersion;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int* count) {
  return call(
      Call::kCount,
      [&](Machine& machine, Lock&) {
        *count = 0;
        if (machine.settings.driver != Driver::kPresent) return cudaErrorInsufficientDriver;
        *count = static_cast<int>(machine.devices.size());
        return *count == 0 ? cudaErrorNoDevice : cudaSuccess;
      },
      Needs::kNothing);
}
cudaError_t cudaGetDevice(int* device) {
  return call(
      Call::kCurrent,
      [&](Machine& machine, Lock&) {
        if (machine.settings.driver != Driver::kPresent) return cudaErrorInsufficientDriver;
        if (machine.devices.empty()) return cudaErrorNoDevice;
        *device = current_device();
        return cudaSuccess;
      },
      Needs::kNothing);
}
cudaError_t cudaSetDevice(int device) {
  return call(
      Call::kCurrent,
      [&](Machine& machine, Lock&) {
        if (machine.settings.driver != Driver::kPresent) return cudaErrorInsufficientDriver;
        if (machine.devices.empty()) return cudaErrorNoDevice;
        if (device < 0 || static_cast<std::size_t>(device) >= machine.devices.size())
          return cudaErrorInvalidDevice;
        this_thread_state().device = device;
        enter_context(machine, device);  // since CUDA 12
        return machine.devices[device].lost;
      },
      Needs::kNothing);
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  const auto look = [&](Machine& machine, Lock&) {
    if (device < 0 || static_cast<std::size_t>(device) >= machine.devices.size())
      return cudaErrorInvalidDevice;
    *properties = {};
    std::snprintf(properties->name, sizeof properties->name, "simulated device %d", device);
    properties->totalGlobalMem = machine.devices[device].memory_bytes;
    properties->major = 9;
    properties->multiProcessorCount = 1;
    properties->asyncEngineCount = 2;
    return machine.devices[device].lost;
  };
  return call(Call::kProperties, look, Needs::kDevice);
}
cudaError_t cudaDeviceGetStreamPriorityRange(int* lowest, int* highest) {
  return call(Call::kProperties, [&](Machine&, Lock&) {
    *lowest = 0;
    *highest = -5;
    return cudaSuccess;
  });
}
cudaError_t cudaDeviceSynchronize() {
  return call(Call::kDeviceWait, [&](Machine& machine, Lock& lock) {
    machine.journal.count_wait(&Waits::for_device);
    return machine.finish_device(lock, current_device());
  });
}
