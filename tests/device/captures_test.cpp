// The calls that a capture forbids, by thread, and the effect of such a call on the capture.
#include <functional>
#include <thread>

#include "fixture.hpp"

namespace penstock::simulated::captures_test {
namespace {

class SimulatedCapture : public SimulatedDevice {
 protected:
  // The result of a call while a stream is captured, and the result of the end of the capture.
  struct Outcome {
    cudaError_t call, end;
    bool operator==(const Outcome&) const = default;
  };
  Outcome while_captured(cudaStreamCaptureMode mode, const std::function<cudaError_t()>& call) {
    const cudaStream_t stream = new_stream();
    EXPECT_EQ(cudaStreamBeginCapture(stream, mode), cudaSuccess);
    Outcome outcome{};
    outcome.call = call();
    cudaGraph_t graph = nullptr;
    outcome.end = cudaStreamEndCapture(stream, &graph);
    if (graph != nullptr) {
      EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
    }
    EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
    return outcome;
  }
  // The outcome of a call by another thread in this mode.
  Outcome by_another(cudaStreamCaptureMode mode, cudaStreamCaptureMode own,
                     const std::function<cudaError_t()>& call) {
    return while_captured(mode, [&] {
      cudaError_t error = cudaSuccess;
      std::thread([&] {
        cudaStreamCaptureMode exchanged = own;
        EXPECT_EQ(cudaThreadExchangeStreamCaptureMode(&exchanged), cudaSuccess);
        EXPECT_EQ(exchanged, cudaStreamCaptureModeGlobal) << "what a thread begins with";
        error = call();
      }).join();
      return error;
    });
  }
};

constexpr auto kGlobal = cudaStreamCaptureModeGlobal, kLocal = cudaStreamCaptureModeThreadLocal,
               kRelaxed = cudaStreamCaptureModeRelaxed;
constexpr auto kForbidden = cudaErrorStreamCaptureUnsupported;
constexpr auto kSpoiled = cudaErrorStreamCaptureInvalidated;

TEST_F(SimulatedCapture, WhatMayWaitOrAllocatesIsForbiddenAndSpoilsIt) {
  const cudaEvent_t event = new_event();
  const cudaStream_t other = new_stream();
  unsigned char* memory = device_bytes(1);
  unsigned char* pinned = pinned_bytes(1);
  void* none = nullptr;
  const std::function<cudaError_t()> calls[] = {
      [&] { return cudaEventQuery(event); },
      [&] { return cudaEventSynchronize(event); },
      [&] { return cudaStreamQuery(other); },
      [&] { return cudaStreamSynchronize(other); },
      [&] { return cudaDeviceSynchronize(); },
      [&] { return cudaMalloc(&none, 1); },
      [&] { return cudaHostAlloc(&none, 1, cudaHostAllocPortable); },
      [&] { return cudaFree(nullptr); },
      [&] { return cudaFreeHost(nullptr); },
      [&] { return cudaMemcpy(memory, pinned, 1, cudaMemcpyHostToDevice); },
  };
  for (const auto& call : calls) {
    const Outcome forbidden{kForbidden, kSpoiled}, passes{cudaSuccess, cudaSuccess};
    EXPECT_EQ(while_captured(kGlobal, call), forbidden);
    EXPECT_EQ(while_captured(kLocal, call), forbidden);
    EXPECT_EQ(by_another(kGlobal, kGlobal, call), forbidden);
    EXPECT_EQ(by_another(kGlobal, kLocal, call), passes);
    EXPECT_EQ(by_another(kGlobal, kRelaxed, call), passes);
    EXPECT_EQ(by_another(kLocal, kGlobal, call), passes);
    (void)cudaFree(none);
  }
}

TEST_F(SimulatedCapture, WhatIsOnlyQueuedElsewherePasses) {
  const cudaEvent_t event = new_event();
  const cudaStream_t other = new_stream();
  const Outcome passes{cudaSuccess, cudaSuccess};
  EXPECT_EQ(by_another(kGlobal, kGlobal, [&] { return cudaEventRecord(event, other); }), passes);
  EXPECT_EQ(while_captured(kGlobal, [&] { return cudaStreamWaitEvent(other, event); }), passes);
}

}  // namespace
}  // namespace penstock::simulated::captures_test
