// Intentional faults on which a GPU and this processor behave differently. Kernels for the
// simulated device are compiled so that such faults end the program. This file is compiled like
// kernels.
#include <cuda_runtime.h>

#include <csignal>

#include "fixture.hpp"

namespace penstock::simulated::kernel_traps_test {

class SimulatedKernelTrapsDeathTest : public SimulatedDevice {};

__global__ void load_wide(const unsigned char* from, uint64_t* to) {
  *to = *reinterpret_cast<const uint64_t*>(from);
}
__global__ void shift_by(unsigned bits, unsigned* to) {
  *to = 1u << bits;
}
__global__ void as_integer(float value, int* to) {
  *to = static_cast<int>(value);
}

template <typename... Parameters, typename... Arguments>
void run_and_wait(void (*kernel)(Parameters...), Arguments... arguments) {
  cudaLaunchConfig_t config{};
  config.blockDim = dim3(32);
  (void)cudaLaunchKernelEx(&config, kernel, arguments...);
  (void)cudaDeviceSynchronize();
}

constexpr char kSentence[] =
    "a kernel on device 0 did what a GPU and this processor do differently";

TEST_F(SimulatedKernelTrapsDeathTest, AWideLoadOfWhatDoesNotLieSo) {
  unsigned char* const memory = device_bytes(32);
  auto* const to = reinterpret_cast<uint64_t*>(memory + 16);
  run_and_wait(load_wide, memory + 8, to);
  EXPECT_EXIT(run_and_wait(load_wide, memory + 4, to), ::testing::KilledBySignal(SIGILL),
              kSentence);
}

TEST_F(SimulatedKernelTrapsDeathTest, AShiftByAllBits) {
  auto* const to = reinterpret_cast<unsigned*>(device_bytes(4));
  run_and_wait(shift_by, 31u, to);
  EXPECT_EXIT(run_and_wait(shift_by, 32u, to), ::testing::KilledBySignal(SIGILL), kSentence);
}

TEST_F(SimulatedKernelTrapsDeathTest, AFloatThatTheIntegerCannotHold) {
  auto* const to = reinterpret_cast<int*>(device_bytes(4));
  run_and_wait(as_integer, -2147483648.0f, to);
  EXPECT_EXIT(run_and_wait(as_integer, 2147483648.0f, to), ::testing::KilledBySignal(SIGILL),
              kSentence);
}

}  // namespace penstock::simulated::kernel_traps_test
