// The objects that the plugin has on its device: a stream, events, and memory for counts.
#pragma once

#include <cuda_runtime_api.h>

#include <kernels/cuda/current_device.hpp>

#include <cstdint>
#include <utility>

namespace penstock::nccl {

// Throws DEVICE_ERROR with CUDA's own text unless the call has succeeded.
void check(cudaError_t error, const char* what);

// Makes `device` current for this thread while the object lives. Throws like `check`.
class CurrentDevice {
 public:
  explicit CurrentDevice(int device);

 private:
  kernels::cuda::CurrentDevice scope_;
};

// Owns one CUDA object. The destructor ignores errors of Destroy, because nothing can be done about
// them.
template <typename Thing, cudaError_t (*Destroy)(Thing)>
class Owned {
 public:
  Owned() = default;
  explicit Owned(Thing thing) : thing_(thing) {}
  Owned(Owned&& other) noexcept : thing_(std::exchange(other.thing_, Thing{})) {}
  Owned& operator=(Owned&& other) noexcept {
    std::swap(thing_, other.thing_);
    return *this;
  }
  ~Owned() {
    if (thing_ != Thing{}) (void)Destroy(thing_);
  }
  Thing get() const { return thing_; }

 private:
  Thing thing_{};
};

// A stream of the device that is current, like the events and the memory below.
using Stream = Owned<cudaStream_t, cudaStreamDestroy>;
Stream make_stream();  // of the highest priority; does not wait for the default stream

// Marks the work that was queued on a stream up to one moment.
class Event {
 public:
  Event();
  void record(cudaStream_t stream) const;
  bool has_passed() const;  // does not wait
  void hold_back(cudaStream_t stream) const;

 private:
  Owned<cudaEvent_t, cudaEventDestroy> event_;
};

// Counts of elements in transit between ranks: `n` counts on the device and `n` counts in pinned
// memory of the host.
class Counts {
 public:
  explicit Counts(uint32_t n);
  uint64_t* host() const { return static_cast<uint64_t*>(host_.get()); }
  uint64_t* device() const { return static_cast<uint64_t*>(device_.get()); }

 private:
  Owned<void*, cudaFreeHost> host_;
  Owned<void*, cudaFree> device_;
};

}  // namespace penstock::nccl
