// See device.hpp.
#include "device.hpp"

#include <penstock/error.hpp>

namespace penstock::nccl {

void check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  (void)cudaGetLastError();  // later calls must not find this error
  throw sdk::Error(PENSTOCK_DEVICE_ERROR, sdk::text(what, ": ", cudaGetErrorString(error)));
}

CurrentDevice::CurrentDevice(int device) : scope_(device) {
  check(static_cast<cudaError_t>(scope_.error()), "cuCtxSetCurrent");
}

Stream make_stream() {
  int lowest = 0, highest = 0;
  check(cudaDeviceGetStreamPriorityRange(&lowest, &highest), "cudaDeviceGetStreamPriorityRange");
  cudaStream_t made = nullptr;
  check(cudaStreamCreateWithPriority(&made, cudaStreamNonBlocking, highest),
        "cudaStreamCreateWithPriority");
  return Stream(made);
}

Event::Event() {
  cudaEvent_t made = nullptr;
  check(cudaEventCreateWithFlags(&made, cudaEventDisableTiming), "cudaEventCreateWithFlags");
  event_ = Owned<cudaEvent_t, cudaEventDestroy>(made);
}

void Event::record(cudaStream_t stream) const {
  check(cudaEventRecord(event_.get(), stream), "cudaEventRecord");
}

bool Event::has_passed() const {
  const cudaError_t error = cudaEventQuery(event_.get());
  if (error != cudaErrorNotReady) check(error, "cudaEventQuery");
  if (error == cudaErrorNotReady) (void)cudaGetLastError();
  return error == cudaSuccess;
}

void Event::hold_back(cudaStream_t stream) const {
  check(cudaStreamWaitEvent(stream, event_.get(), 0), "cudaStreamWaitEvent");
}

Counts::Counts(uint32_t n) {
  void* made = nullptr;
  check(cudaHostAlloc(&made, n * sizeof(uint64_t), cudaHostAllocPortable), "cudaHostAlloc");
  host_ = Owned<void*, cudaFreeHost>(made);
  check(cudaMalloc(&made, n * sizeof(uint64_t)), "cudaMalloc");
  device_ = Owned<void*, cudaFree>(made);
}

}  // namespace penstock::nccl
