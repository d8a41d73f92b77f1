// The device table over the CUDA runtime. The runtime is linked statically, and libcuda is not
// linked. So this file loads on any machine. If there is no driver, device_count reports the
// reason.
#include "core/device/cuda/element_kernels.hpp"
#include "core/device/device_table.h"

#include <penstock/base.h>

#include <cuda_runtime_api.h>
#include <kernels/cuda/current_device.hpp>
#include <kernels/cuda/loading.hpp>

#include <algorithm>
#include <cstring>

namespace {

// Runs `body` with `device` current. Clears the runtime's sticky last error, so that other code
// does not see an error of Penstock.
template <typename Body>
int32_t on_device(int32_t device, Body&& body) {
  const penstock::kernels::cuda::CurrentDevice current(device);
  const int32_t error = current.error() == cudaSuccess ? body() : current.error();
  if (error != cudaSuccess) (void)cudaGetLastError();
  return error;
}

cudaStream_t as_stream(void* stream) {
  return static_cast<cudaStream_t>(stream);
}
cudaEvent_t as_event(void* event) {
  return static_cast<cudaEvent_t>(event);
}

const char* error_text(int32_t error) {
  return cudaGetErrorString(static_cast<cudaError_t>(error));
}

// For the core all reasons are equal, but the user must do something else for each.
const char* why_none_is_usable(cudaError_t error) {
  if (error == cudaErrorNoDevice)
    return "the driver finds no device; nvidia-smi lists all devices, and CUDA_VISIBLE_DEVICES may "
           "hide them";
  int version = 0;
  if (cudaDriverGetVersion(&version) != cudaSuccess) (void)cudaGetLastError();
  if (version == 0) return "this machine has no NVIDIA driver; install one";
  return "the NVIDIA driver is older than this build's CUDA; update the driver";
}

int32_t device_count(int32_t* count, const char** why_none) {
  *count = 0;
  *why_none = nullptr;
  int found = 0;
  const cudaError_t error = cudaGetDeviceCount(&found);
  if (error != cudaSuccess) (void)cudaGetLastError();
  if (error == cudaErrorInsufficientDriver || error == cudaErrorNoDevice) {
    *why_none = why_none_is_usable(error);
    return cudaSuccess;
  }
  if (error != cudaSuccess) return error;
  *count = found;
  if (found == 0) *why_none = why_none_is_usable(cudaErrorNoDevice);
  return cudaSuccess;
}

int32_t properties(int32_t device, penstock_device_properties* properties) {
  cudaDeviceProp found{};
  if (const cudaError_t error = cudaGetDeviceProperties(&found, device); error != cudaSuccess) {
    (void)cudaGetLastError();
    return error;
  }
  properties->memory_bytes = found.totalGlobalMem;
  static_assert(sizeof found.name == sizeof properties->name);
  std::memcpy(properties->name, found.name, sizeof found.name);
  properties->major = found.major;
  properties->minor = found.minor;
  properties->n_multiprocessors = found.multiProcessorCount;
  properties->n_copy_engines = found.asyncEngineCount;
  return cudaSuccess;
}

// Before the first stream no kernel of Penstock runs for which the loading could wait.
int32_t stream_create(int32_t device, int32_t priority, void** stream) {
  const char* why = nullptr;
  if (const int32_t error = penstock::kernels::cuda::load_kernels(device, &why); error != 0)
    return error;
  return on_device(device, [&] {
    int lowest = 0, highest = 0;
    if (const cudaError_t error = cudaDeviceGetStreamPriorityRange(&lowest, &highest);
        error != cudaSuccess)
      return error;
    cudaStream_t made = nullptr;
    const cudaError_t error =
        cudaStreamCreateWithPriority(&made, cudaStreamNonBlocking, priority > 0 ? highest : lowest);
    if (error == cudaSuccess) *stream = made;
    return error;
  });
}
int32_t stream_destroy(int32_t device, void* stream) {
  return on_device(device, [&] { return cudaStreamDestroy(as_stream(stream)); });
}
int32_t stream_wait(int32_t device, void* stream) {
  return on_device(device, [&] { return cudaStreamSynchronize(as_stream(stream)); });
}

int32_t create_event(int32_t device, unsigned flags, void** event) {
  return on_device(device, [&] {
    cudaEvent_t made = nullptr;
    const cudaError_t error = cudaEventCreateWithFlags(&made, flags);
    if (error == cudaSuccess) *event = made;
    return error;
  });
}
int32_t event_create(int32_t device, void** event) {
  return create_event(device, cudaEventDisableTiming, event);
}
int32_t event_create_timed(int32_t device, void** event) {
  return create_event(device, cudaEventDefault, event);
}
int32_t event_elapsed(int32_t device, void* begin, void* end, double* us) {
  return on_device(device, [&] {
    float milliseconds = 0;
    const cudaError_t error = cudaEventElapsedTime(&milliseconds, as_event(begin), as_event(end));
    if (error == cudaSuccess) *us = 1e3 * static_cast<double>(milliseconds);
    return error;
  });
}
int32_t event_destroy(int32_t device, void* event) {
  return on_device(device, [&] { return cudaEventDestroy(as_event(event)); });
}
int32_t event_record(int32_t device, void* event, void* stream) {
  return on_device(device, [&] { return cudaEventRecord(as_event(event), as_stream(stream)); });
}
int32_t event_query(int32_t device, void* event, uint32_t* done) {
  return on_device(device, [&] {
    const cudaError_t error = cudaEventQuery(as_event(event));
    if (error == cudaErrorNotReady) {
      (void)cudaGetLastError();
      *done = 0;
      return cudaSuccess;
    }
    if (error == cudaSuccess) *done = 1;
    return error;
  });
}
int32_t event_wait(int32_t device, void* stream, void* event) {
  return on_device(device,
                   [&] { return cudaStreamWaitEvent(as_stream(stream), as_event(event), 0); });
}

int32_t copy(int32_t device, void* target, const void* source, uint64_t bytes, void* stream,
             cudaMemcpyKind kind) {
  return on_device(device,
                   [&] { return cudaMemcpyAsync(target, source, bytes, kind, as_stream(stream)); });
}
int32_t copy_to_device(int32_t device, void* target, const void* source, uint64_t bytes,
                       void* stream) {
  return copy(device, target, source, bytes, stream, cudaMemcpyHostToDevice);
}
int32_t copy_to_host(int32_t device, void* target, const void* source, uint64_t bytes,
                     void* stream) {
  return copy(device, target, source, bytes, stream, cudaMemcpyDeviceToHost);
}
int32_t copy_on_device(int32_t device, void* target, const void* source, uint64_t bytes,
                       void* stream) {
  return copy(device, target, source, bytes, stream, cudaMemcpyDeviceToDevice);
}

// Zero bytes get memory too, because callers would take a null pointer for a failure.
int32_t allocate(int32_t device, uint64_t bytes, void** memory) {
  return on_device(device, [&] { return cudaMalloc(memory, std::max<uint64_t>(bytes, 1)); });
}
int32_t free_memory(int32_t device, void* memory) {
  return on_device(device, [&] { return cudaFree(memory); });
}
int32_t host_allocate(int32_t device, uint64_t bytes, void** memory) {
  return on_device(device, [&] {
    return cudaHostAlloc(memory, std::max<uint64_t>(bytes, 1), cudaHostAllocPortable);
  });
}
int32_t host_free(int32_t device, void* memory) {
  return on_device(device, [&] { return cudaFreeHost(memory); });
}

int32_t clear(int32_t device, void* target, uint64_t bytes, void* stream) {
  return on_device(device, [&] { return cudaMemsetAsync(target, 0, bytes, as_stream(stream)); });
}
int32_t find_nonfinite(int32_t device, const penstock_device_values* arrays, uint64_t n_arrays,
                       void* stream) {
  return on_device(device, [&] {
    return penstock::device_cuda::find_nonfinite({arrays, n_arrays}, as_stream(stream));
  });
}
int32_t fill_nan(int32_t device, void* values, uint64_t count, uint32_t dtype, void* stream) {
  return on_device(device, [&] {
    return penstock::device_cuda::fill_nan(values, count, dtype, as_stream(stream));
  });
}
int32_t scale(int32_t device, void* values, uint64_t count, uint32_t dtype, float factor,
              void* stream) {
  return on_device(device, [&] {
    return penstock::device_cuda::scale(values, count, dtype, factor, as_stream(stream));
  });
}
int32_t narrow(int32_t device, const float* source, void* target, uint64_t count, uint32_t dtype,
               void* stream) {
  return on_device(device, [&] {
    return penstock::device_cuda::narrow(source, target, count, dtype, as_stream(stream));
  });
}

int32_t check_indices(int32_t device, const penstock_index_list* lists, uint64_t n_lists,
                      void* stream) {
  return on_device(device, [&] {
    return penstock::device_cuda::check_indices({lists, n_lists}, as_stream(stream));
  });
}

int32_t copy_many(int32_t device, const penstock_device_copy* copies, uint64_t n_copies,
                  void* stream) {
  return on_device(device, [&] {
    return penstock::device_cuda::copy_many({copies, n_copies}, as_stream(stream));
  });
}

int32_t make_current(int32_t device) {
  // The thread must not take part in captures by other threads, such as a capture of a model's
  // graph. In the default mode its next query of an event would fail and would also invalidate the
  // capture.
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  cudaError_t error = cudaThreadExchangeStreamCaptureMode(&mode);
  if (error == cudaSuccess) error = cudaSetDevice(device);
  // Before CUDA 12 a thread gets the device's context with its first call that needs a context.
  if (error == cudaSuccess) error = cudaFree(nullptr);
  if (error != cudaSuccess) (void)cudaGetLastError();
  return error;
}

}  // namespace

extern "C" PENSTOCK_DEVICE_EXPORT const penstock_device_table penstock_device{
    sizeof(penstock_device_table),
    PENSTOCK_DEVICE_CUDA,
    0,
    error_text,
    device_count,
    properties,
    stream_create,
    stream_destroy,
    stream_wait,
    event_create,
    event_destroy,
    event_record,
    event_query,
    event_wait,
    copy_to_device,
    copy_to_host,
    copy_on_device,
    allocate,
    free_memory,
    host_allocate,
    host_free,
    clear,
    find_nonfinite,
    fill_nan,
    scale,
    narrow,
    check_indices,
    copy_many,
    make_current,
    event_create_timed,
    event_elapsed,
};
