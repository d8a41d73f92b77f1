// For the tests of the simulated device: a new machine for each test, and short helpers.
#pragma once

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "simulated.hpp"

#define SUCCEEDS(call) ASSERT_EQ(call, cudaSuccess) << cudaGetErrorString(cudaPeekAtLastError())

namespace penstock::simulated {

class SimulatedDevice : public ::testing::Test {
 protected:
  void SetUp() override {
    // A device closes memory for the whole process, so a death test must start a new process.
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    begin({});
  }
  void TearDown() override { begin({}); }

  static void begin(const Settings& settings) {
    reset(settings);
    (void)cudaSetDevice(0);
    (void)cudaGetLastError();
  }
  static void begin_with_seed(uint64_t seed) {
    Settings settings;
    settings.seed = seed;
    begin(settings);
  }
};

inline unsigned char* device_bytes(uint64_t n) {
  void* memory = nullptr;
  EXPECT_EQ(cudaMalloc(&memory, n), cudaSuccess);
  return static_cast<unsigned char*>(memory);
}
inline unsigned char* pinned_bytes(uint64_t n) {
  void* memory = nullptr;
  EXPECT_EQ(cudaHostAlloc(&memory, n, cudaHostAllocPortable), cudaSuccess);
  return static_cast<unsigned char*>(memory);
}
inline cudaStream_t new_stream(unsigned flags = cudaStreamNonBlocking) {
  cudaStream_t stream = nullptr;
  EXPECT_EQ(cudaStreamCreateWithFlags(&stream, flags), cudaSuccess);
  return stream;
}
inline cudaEvent_t new_event() {
  cudaEvent_t event = nullptr;
  EXPECT_EQ(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), cudaSuccess);
  return event;
}

// The content of the device's memory after all its work.
inline std::vector<unsigned char> read(const unsigned char* memory, uint64_t n) {
  std::vector<unsigned char> bytes(n);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_EQ(cudaMemcpy(bytes.data(), memory, n, cudaMemcpyDeviceToHost), cudaSuccess);
  return bytes;
}

// The only report.
inline Report only_report() {
  const std::vector<Report> all = reports();
  EXPECT_EQ(all.size(), 1u);
  return all.empty() ? Report{Misuse::kDeadHandle, "none"} : all.front();
}
inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace penstock::simulated
