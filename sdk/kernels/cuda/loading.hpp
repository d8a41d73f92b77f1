// Loads kernels on a device before a step needs them. Otherwise the CUDA runtime loads each kernel
// at its first launch, and may first wait for all work of the device. That work may include a
// message that waits for another rank, whose host may wait in this way too: a deadlock.
//
// Each program or library that is linked with kernels has a list of the kernels that it may launch.
#pragma once

#include <cstdint>

namespace penstock::kernels::cuda {

// An entry of the list. It is in the list as soon as the program or library is loaded.
struct ListedKernel {
  explicit ListedKernel(const void* of) noexcept;
  ListedKernel(const ListedKernel&) = delete;
  ListedKernel& operator=(const ListedKernel&) = delete;

  const void* const kernel;
  ListedKernel* const next;
};

template <auto kKernel>
inline ListedKernel listing{reinterpret_cast<const void*>(kKernel)};
// Returns a kernel for a launch. Compiling this call puts the kernel in the list, even if the
// launch is never reached.
template <auto kKernel>
auto listed() noexcept {
  (void)&listing<kKernel>;
  return kKernel;
}

// Loads all kernels of the list on a device, once; may wait for the device's work. Returns 0 or the
// number of a CUDA error, whose text is then in `why` and stays valid for ever. [control]
int32_t load_kernels(int32_t device, const char** why) noexcept;

}  // namespace penstock::kernels::cuda
