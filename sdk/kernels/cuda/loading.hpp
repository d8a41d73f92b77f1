// Kernels are loaded on a device before a step needs them. Else the runtime loads each with its
// first launch, and may wait for all work of the device to do so: for a message, too, that waits
// for another rank, whose host may wait in the same way, for ever.
//
// Each program or library that is linked with kernels has a list of those that it may launch.
#pragma once

#include <cstdint>

namespace penstock::kernels::cuda {

// One that is, from the moment on when the program or library is there.
struct ListedKernel {
  explicit ListedKernel(const void* of) noexcept;
  ListedKernel(const ListedKernel&) = delete;
  ListedKernel& operator=(const ListedKernel&) = delete;

  const void* const kernel;
  ListedKernel* const next;
};

template <auto kKernel>
inline ListedKernel listing{reinterpret_cast<const void*>(kKernel)};
// A kernel, for whoever launches it: it is in the list, whether the launch is ever reached or not.
template <auto kKernel>
auto listed() noexcept {
  (void)&listing<kKernel>;
  return kKernel;
}

// Loads all of the list on a device, once; may wait for the device's work. 0, or the number of an
// error of CUDA's, and what it means: `why` lives for ever. [control]
int32_t load_kernels(int32_t device, const char** why) noexcept;

}  // namespace penstock::kernels::cuda
