// The runtime's own threads with devices: the contexts that they make, and their behaviour while
// other threads capture graphs.

#include "core/set/on_devices/resident_testing.hpp"

#include <cuda_runtime_api.h>

#include <thread>

namespace penstock::resident_threads_test {
namespace {

using namespace testing;  // every name in resident_testing.hpp

const std::string kOverNcclOnTheSecond = std::string(kOverNccl) + "device = 1\n";

struct Path {
  const char* name;
  std::string scheme;
};
void PrintTo(const Path& way, std::ostream* out) {
  *out << way.name;
}
const ResidentMethod kTopk{"topk", kWithResidual};
const Path kWays[] = {{"through_host_memory", scheme_text("scheduler = \"wfbp\"")},
                      {"payloads_through_host_memory", resident_scheme(kTopk)},
                      {"from_device_to_device", resident_scheme(kTopk, kOverNcclOnTheSecond)}};

class DeviceThreads : public ::testing::TestWithParam<Path> {};
INSTANTIATE_TEST_SUITE_P(Ways, DeviceThreads, ::testing::ValuesIn(kWays),
                         [](const auto& info) { return std::string(info.param.name); });

// Runs steps of a rank whose gradients lie on cuda:1.
void with_steps_on_the_second(const std::string& scheme,
                              const std::function<void(Set&, std::vector<Storage>&)>& step) {
  with_device_ranks(1, scheme, [&](Runtime& runtime, uint32_t) {
    const auto shapes = lying_on({{"x", {300}}, {"y", {200}}}, on_cuda(1));
    std::vector<Storage> storage = storage_of(shapes);
    auto set = make_set(runtime, shapes);
    ASSERT_OK(set.status());
    for (int i = 0; i < 3; ++i) {
      for (size_t g = 0; g < storage.size(); ++g) {
        storage[g].write(std::vector<float>(storage[g].bytes() / sizeof(float), 1));
        storage[g].settle();
      }
      step(**set, storage);
    }
  });
}

Status hand_in(Set& set, std::vector<Storage>& storage) {
  for (size_t g = 0; g < storage.size(); ++g)
    PENSTOCK_TRY(set.gradient_ready(g, storage[g].tensor(), storage[g].stream()));
  return {};
}

TEST_P(DeviceThreads, LeaveDevicesOfOtherRanksWithoutAContext) {
  const SimulatedDevices devices;
  with_steps_on_the_second(GetParam().scheme, [](Set& set, std::vector<Storage>& storage) {
    ASSERT_OK(hand_in(set, storage));
    ASSERT_OK(set.wait_all());
    ASSERT_OK(set.step_end(true));
  });
  EXPECT_EQ(simulated::contexts(), std::set<int>{1});
}

// A graph of the model is captured while the exchange of the last step still runs.
TEST_P(DeviceThreads, SpoilNoCaptureOfTheApplications) {
  const SimulatedDevices devices;
  with_steps_on_the_second(GetParam().scheme, [](Set& set, std::vector<Storage>& storage) {
    cudaStream_t captured = nullptr;
    cudaGraph_t graph = nullptr;
    ASSERT_EQ(cudaStreamCreateWithFlags(&captured, cudaStreamNonBlocking), cudaSuccess);
    ASSERT_EQ(cudaStreamBeginCapture(captured, cudaStreamCaptureModeGlobal), cudaSuccess);
    ASSERT_OK(hand_in(set, storage));
    for (size_t g = 0; g < storage.size(); ++g)  // the host waits for the engine, not for a device
      ASSERT_OK(set.wait_stream(g, storage[g].stream()));
    EXPECT_EQ(cudaStreamEndCapture(captured, &graph), cudaSuccess);
    if (graph != nullptr) {
      EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
    }
    EXPECT_EQ(cudaStreamDestroy(captured), cudaSuccess);
    ASSERT_OK(set.step_end(true));
    for (const Storage& one : storage) one.settle();
  });
}

}  // namespace
}  // namespace penstock::resident_threads_test
