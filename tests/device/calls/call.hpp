// How every call of the runtime begins and ends: lock, count, faults that tests ordered, devices
// that are lost, the thread's current device and last error.
#pragma once

#include <cuda_runtime_api.h>

#include <string>

#include "../machine/machine.hpp"

namespace penstock::simulated {

struct ThisThread {
  int device = 0;
  cudaError_t last_error = cudaSuccess;
  int captures = 0;  // begun here and not ended
};
ThisThread& this_thread_state();

// Whether a call needs the current device alive.
enum class Needs { kNothing, kDevice };

// No driver, no device, the device lost, or an error that a test ordered.
cudaError_t refusal(Machine& machine, Call kind, Needs needs);
cudaError_t refusal_of_device(const Machine& machine);

// `body(machine, lock)` with the machine locked, unless the call is refused.
template <typename Body>
cudaError_t call(Call kind, Body&& body, Needs needs = Needs::kDevice) {
  Machine& all = machine();
  Lock lock(all.mutex);
  cudaError_t error = refusal(all, kind, needs);
  if (error == cudaSuccess) error = body(all, lock);
  if (error != cudaSuccess) this_thread_state().last_error = error;
  return error;
}

// ---- Handles ----

template <typename Handle>
Handle as_handle(uint64_t id) {
  return reinterpret_cast<Handle>(id);
}
template <typename Handle>
uint64_t id_of(Handle handle) {
  return reinterpret_cast<uint64_t>(handle);
}

// The stream of a handle, null for the current device's legacy stream; null where it is dead, which
// is reported.
Stream* find_stream(Machine& machine, cudaStream_t handle, const char* function);
Event* find_event(Machine& machine, cudaEvent_t handle, const char* function);

// What must not be called by a thread that captures: it would wait, or order streams.
inline bool captures() {
  return this_thread_state().captures > 0;
}

}  // namespace penstock::simulated
