// What the plugin has on its device: a stream, events, and memory for counts.
#pragma once

#include <cuda_runtime_api.h>

#include <kernels/cuda/current_device.hpp>

#include <cstdint>
#include <utility>

namespace penstock::nccl {

// Throws DEVICE_ERROR with CUDA's own words unless the call has succeeded.
void check(cudaError_t error, const char* what);

// Makes `device` current while it lives, for this thread. Throws as check does.
class CurrentDevice {
 public:
  explicit CurrentDevice(int device);

 private:
  kernels::cuda::CurrentDevice scope_;
};

// Owns one thing of CUDA's. Whoever destroys has no use for an error.
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

// All on the device that is current.
using Stream = Owned<cudaStream_t, cudaStreamDestroy>;
Stream make_stream();  // goes before others of the device, and waits for none of them

// Work queued on a stream up to a moment.
class Event {
 public:
  Event();
  void record(cudaStream_t stream) const;
  bool has_passed() const;  // asks, does not wait
  void hold_back(cudaStream_t stream) const;

 private:
  Owned<cudaEvent_t, cudaEventDestroy> event_;
};

// Counts of elements on their way between hosts' programs: as many on the device as in pinned
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
