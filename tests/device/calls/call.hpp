// The begin and end of every call of the runtime: lock, counts, ordered faults, lost devices, and
// the thread's current device and last error.
#pragma once

#include <cuda_runtime_api.h>

#include <string>

#include "../machine/machine.hpp"

namespace penstock::simulated {

struct ThisThread {
  int device = 0;    // the runtime's current device, if the thread has no context
  int context = -1;  // device of the thread's current context; -1: none
  uint64_t generation = 0;
  cudaError_t last_error = cudaSuccess;
  cudaStreamCaptureMode capture_mode = cudaStreamCaptureModeGlobal;
};
ThisThread& this_thread_state();
// The device that cudaGetDevice returns. Makes no context.
int current_device();
// Makes the device's context current in the thread. Records the context if it is new.
void enter_context(Machine& machine, int device);

// Whether a call needs a working current device, or also its context, which the call makes if there
// is none.
enum class Needs { kNothing, kDevice, kContext };

// The error for a missing driver or device, a lost device, or a fault that a test ordered.
cudaError_t refusal(Machine& machine, Call kind, Needs needs);
cudaError_t refusal_of_device(const Machine& machine);

// For a call that may wait or that a graph cannot hold. It is refused with error 900 while this
// thread captures, and while another thread captures in mode global, unless the mode of this thread
// allows it. A refused call invalidates the captures.
cudaError_t refusal_of_captures(Machine& machine);
bool is_unsafe_in_captures(Call kind);

// Calls `body(machine, lock)` with the machine locked, unless the call is refused.
template <typename Body>
cudaError_t call(Call kind, Body&& body, Needs needs = Needs::kContext) {
  Machine& all = machine();
  Lock lock(all.mutex);
  cudaError_t error = refusal(all, kind, needs);
  if (error == cudaSuccess && is_unsafe_in_captures(kind)) error = refusal_of_captures(all);
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

// The stream of a handle. A null handle is the legacy stream of the current device. Null, after a
// report, if the stream is destroyed.
Stream* find_stream(Machine& machine, cudaStream_t handle, const char* function);
Event* find_event(Machine& machine, cudaEvent_t handle, const char* function);

}  // namespace penstock::simulated
