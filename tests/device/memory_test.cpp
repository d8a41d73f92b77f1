// The host cannot reach device memory, and copies check their bounds.
#include <csignal>
#include <set>

#include "fixture.hpp"

namespace penstock::simulated::memory_test {

class SimulatedMemory : public SimulatedDevice {};
class SimulatedMemoryDeathTest : public SimulatedDevice {};

// The compiler must not remove this access.
void touch(unsigned char* memory) {
  *static_cast<volatile unsigned char*>(memory) = 1;
}

#define EXPECT_ENDS_WITH_SENTENCE(statement, sentence) \
  EXPECT_EXIT(statement, ::testing::KilledBySignal(SIGSEGV), sentence)

TEST_F(SimulatedMemoryDeathTest, AHostThatTouchesDeviceMemoryDies) {
  unsigned char* memory = device_bytes(1000);
  EXPECT_ENDS_WITH_SENTENCE(
      touch(memory + 16),
      "the host touched byte 16 of allocation [0-9]+ \\(1000 bytes, memory of "
      "device 0\\); only kernels and copies may");
}

TEST_F(SimulatedMemoryDeathTest, AHostThatTouchesDeviceMemoryAfterACopyDies) {
  unsigned char* memory = device_bytes(8);
  SUCCEEDS(cudaMemset(memory, 1, 8));
  EXPECT_EQ(read(memory, 1)[0], 1);
  EXPECT_ENDS_WITH_SENTENCE(touch(memory), "the host touched byte 0 of allocation");
}

TEST_F(SimulatedMemoryDeathTest, AHostThatTouchesFreedMemoryDies) {
  unsigned char* memory = device_bytes(8);
  SUCCEEDS(cudaFree(memory));
  EXPECT_ENDS_WITH_SENTENCE(touch(memory), "device 0\\), which has been freed");
  unsigned char* pinned = pinned_bytes(8);
  SUCCEEDS(cudaFreeHost(pinned));
  EXPECT_ENDS_WITH_SENTENCE(touch(pinned), "pinned host memory\\), which has been freed");
}

TEST_F(SimulatedMemoryDeathTest, AHostThatLeavesPinnedMemoryDies) {
  unsigned char* pinned = pinned_bytes(512);
  touch(pinned + 511);
  EXPECT_ENDS_WITH_SENTENCE(touch(pinned + 512), "the host touched 0 bytes behind the end of");
}

TEST_F(SimulatedMemoryDeathTest, OneThatIsOpenToHostsIsSoUntilItIsFreed) {
  Settings settings;
  settings.open_to_hosts = true;
  begin(settings);
  unsigned char* memory = device_bytes(256);
  touch(memory);
  EXPECT_EQ(read(memory, 1)[0], 1);
  SUCCEEDS(cudaMemset(memory, 7, 8));
  SUCCEEDS(cudaDeviceSynchronize());
  EXPECT_EQ(memory[7], 7);
  EXPECT_ENDS_WITH_SENTENCE(touch(memory + 256), "the host touched 0 bytes behind the end of");
  SUCCEEDS(cudaFree(memory));
  EXPECT_ENDS_WITH_SENTENCE(touch(memory), "device 0\\), which has been freed");
}

TEST_F(SimulatedMemoryDeathTest, OtherFaultsAreLeftAlone) {
  (void)device_bytes(1);
  unsigned char* volatile nowhere = nullptr;
  EXPECT_DEATH(touch(nowhere), "^($|[^s]|.*Sanitizer)");
}

TEST_F(SimulatedMemory, FreshMemoryIsNotZero) {
  for (const unsigned char byte : read(device_bytes(100), 100)) EXPECT_NE(byte, 0);
}

TEST_F(SimulatedMemory, AllocationsAreAlignedAndDoNotComeBackSoon) {
  std::set<unsigned char*> seen;
  for (uint64_t bytes = 1; bytes < 20000; bytes = bytes * 3 + 1) {
    for (int time = 0; time < 10; ++time) {
      unsigned char* memory = device_bytes(bytes);
      EXPECT_EQ(reinterpret_cast<uintptr_t>(memory) % 256, 0u);
      EXPECT_TRUE(seen.insert(memory).second);
      SUCCEEDS(cudaFree(memory));
    }
  }
}

TEST_F(SimulatedMemory, WhatWasWrittenIntoTheRestOfAPageIsReported) {
  unsigned char* pinned = pinned_bytes(100);
  touch(pinned + 103);
  SUCCEEDS(cudaFreeHost(pinned));
  EXPECT_EQ(only_report().misuse, Misuse::kMemoryWrittenAround);
  EXPECT_TRUE(contains(only_report().sentence, "written to 3 bytes behind its end"))
      << only_report().sentence;
}

TEST_F(SimulatedMemory, CopiesAreRefusedWhereTheirKindIsWrong) {
  unsigned char* device = device_bytes(8);
  unsigned char* pinned = pinned_bytes(8);
  unsigned char pageable[8] = {};
  for (unsigned char* host : {pinned, pageable}) {
    EXPECT_EQ(cudaMemcpy(host, device, 8, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
    EXPECT_EQ(cudaMemcpy(device, host, 8, cudaMemcpyDeviceToHost), cudaErrorInvalidValue);
    EXPECT_EQ(cudaMemcpy(device, host, 8, cudaMemcpyDeviceToDevice), cudaErrorInvalidValue);
    EXPECT_EQ(cudaMemcpy(host, device, 8, cudaMemcpyHostToHost), cudaErrorInvalidValue);
    EXPECT_EQ(cudaMemcpy(device, host, 8, cudaMemcpyHostToDevice), cudaSuccess);
    EXPECT_EQ(cudaMemcpy(host, device, 8, cudaMemcpyDefault), cudaSuccess);
  }
  EXPECT_EQ(cudaMemset(pageable, 0, 8), cudaErrorInvalidValue);
  EXPECT_EQ(reports().front().misuse, Misuse::kWrongPointer);
  EXPECT_TRUE(contains(reports().front().sentence, "expected as many bytes of a device"));
}

TEST_F(SimulatedMemory, CopiesLongerThanTheirMemoryAreRefused) {
  unsigned char* device = device_bytes(300);
  unsigned char* pinned = pinned_bytes(400);
  EXPECT_EQ(cudaMemcpy(device, pinned, 301, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpy(device + 100, pinned, 201, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpy(device + 100, pinned, 200, cudaMemcpyHostToDevice), cudaSuccess);
  EXPECT_EQ(cudaMemset(device, 0, 301), cudaErrorInvalidValue);
}

TEST_F(SimulatedMemory, PageableSourcesAreReadAtTheCall) {
  unsigned char* device = device_bytes(1);
  const cudaStream_t stream = new_stream();
  unsigned char source = 5;
  SUCCEEDS(cudaMemcpyAsync(device, &source, 1, cudaMemcpyHostToDevice, stream));
  source = 6;
  EXPECT_EQ(read(device, 1)[0], 5);
}

TEST_F(SimulatedMemory, AttributesTellWhereAPointerLies) {
  SUCCEEDS(cudaSetDevice(1));
  unsigned char* device = device_bytes(8);
  unsigned char* pinned = pinned_bytes(8);
  cudaPointerAttributes attributes{};
  SUCCEEDS(cudaPointerGetAttributes(&attributes, device + 3));
  EXPECT_EQ(attributes.type, cudaMemoryTypeDevice);
  EXPECT_EQ(attributes.device, 1);
  EXPECT_EQ(attributes.devicePointer, device + 3);
  EXPECT_EQ(attributes.hostPointer, nullptr);
  SUCCEEDS(cudaPointerGetAttributes(&attributes, pinned));
  EXPECT_EQ(attributes.type, cudaMemoryTypeHost);
  EXPECT_EQ(attributes.hostPointer, pinned);
  SUCCEEDS(cudaPointerGetAttributes(&attributes, &attributes));
  EXPECT_EQ(attributes.type, cudaMemoryTypeUnregistered);
}

TEST_F(SimulatedMemory, NothingAndNullAreFine) {
  void* memory = this;
  SUCCEEDS(cudaMalloc(&memory, 0));
  EXPECT_EQ(memory, nullptr);
  SUCCEEDS(cudaFree(nullptr));
  SUCCEEDS(cudaFreeHost(nullptr));
  SUCCEEDS(cudaMemcpy(nullptr, nullptr, 0, cudaMemcpyDefault));
}

}  // namespace penstock::simulated::memory_test
