// How every call of the runtime begins and ends: lock, count, faults that tests ordered, devices
// that are lost, the thread's current device and last error.
#pragma once

#include <cuda_runtime_api.h>

#include <string>

#include "../machine/machine.hpp"

namespace penstock::simulated {

struct ThisThread {
  int device = 0;    // the runtime's, for when the thread has no context
  int context = -1;  // of which device it is current; -1: the thread has none
  uint64_t generation = 0;
  cudaError_t last_error = cudaSuccess;
  cudaStreamCaptureMode capture_mode = cudaStreamCaptureModeGlobal;
};
ThisThread& this_thread_state();
// As cudaGetDevice says. Makes no context.
int current_device();
// The device's context is the thread's from now on; made where it was not, which is noted.
void enter_context(Machine& machine, int device);

// Whether a call needs the current device alive, or also its context, which is made where there is
// none.
enum class Needs { kNothing, kDevice, kContext };

// No driver, no device, the device lost, or an error that a test ordered.
cudaError_t refusal(Machine& machine, Call kind, Needs needs);
cudaError_t refusal_of_device(const Machine& machine);

// For a call that may wait or that a graph cannot hold. It is refused with error 900 while this
// thread captures, and while another thread captures in mode global, unless the mode of this thread
// allows it. A refused call invalidates the captures.
cudaError_t refusal_of_captures(Machine& machine);
bool is_unsafe_in_captures(Call kind);

// `body(machine, lock)` with the machine locked, unless the call is refused.
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

// The stream of a handle, null for the current device's legacy stream; null where it is dead, which
// is reported.
Stream* find_stream(Machine& machine, cudaStream_t handle, const char* function);
Event* find_event(Machine& machine, cudaEvent_t handle, const char* function);

}  // namespace penstock::simulated
