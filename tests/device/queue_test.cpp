// Streams are queues: the order of work, and the events that hold work back.
#include <atomic>
#include <thread>

#include "fixture.hpp"

namespace penstock::simulated::queue_test {

class SimulatedQueue : public SimulatedDevice {};

constexpr uint64_t kSeeds = 100;

TEST_F(SimulatedQueue, NothingRunsWhenItIsQueued) {
  unsigned char* memory = device_bytes(8);
  const cudaStream_t stream = new_stream();
  const cudaEvent_t event = new_event();
  SUCCEEDS(cudaMemsetAsync(memory, 1, 8, stream));
  SUCCEEDS(cudaMemcpyAsync(memory, memory + 4, 4, cudaMemcpyDeviceToDevice, stream));
  SUCCEEDS(cudaEventRecord(event, stream));
  EXPECT_EQ(queued(), 3u);
  EXPECT_EQ(cudaEventQuery(event), cudaErrorNotReady);
  SUCCEEDS(cudaStreamSynchronize(stream));
  EXPECT_EQ(queued(), 0u);
  EXPECT_EQ(cudaEventQuery(event), cudaSuccess);
  EXPECT_EQ(cudaStreamQuery(stream), cudaSuccess);
}

TEST_F(SimulatedQueue, AStreamKeepsItsOrder) {
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    begin_with_seed(seed);
    unsigned char* memory = device_bytes(1);
    const cudaStream_t stream = new_stream();
    for (int value = 1; value <= 20; ++value) SUCCEEDS(cudaMemsetAsync(memory, value, 1, stream));
    EXPECT_EQ(read(memory, 1)[0], 20);
  }
}

TEST_F(SimulatedQueue, WaitingForOneStreamNeedNotRunAnother) {
  int left = 0;
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    begin_with_seed(seed);
    unsigned char* memory = device_bytes(2);
    const cudaStream_t one = new_stream(), other = new_stream();
    SUCCEEDS(cudaMemsetAsync(memory, 1, 1, one));
    SUCCEEDS(cudaMemsetAsync(memory + 1, 1, 1, other));
    SUCCEEDS(cudaStreamSynchronize(one));
    left += queued() == 1 ? 1 : 0;
  }
  EXPECT_GT(left, 40);
  EXPECT_LT(left, 90);
}

TEST_F(SimulatedQueue, AnEventHoldsWorkBack) {
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    begin_with_seed(seed);
    unsigned char* memory = device_bytes(2);
    const cudaStream_t producer = new_stream(), consumer = new_stream();
    const cudaEvent_t ready = new_event();
    SUCCEEDS(cudaMemsetAsync(memory, 7, 1, producer));
    SUCCEEDS(cudaEventRecord(ready, producer));
    SUCCEEDS(cudaStreamWaitEvent(consumer, ready));
    SUCCEEDS(cudaMemcpyAsync(memory + 1, memory, 1, cudaMemcpyDeviceToDevice, consumer));
    SUCCEEDS(cudaStreamSynchronize(consumer));
    EXPECT_EQ(read(memory, 2)[1], 7) << "seed " << seed;
  }
}

// The times come from the streams' own clocks, which only work advances.
TEST_F(SimulatedQueue, EventsTellWhatTheWorkBetweenThemWouldTake) {
  unsigned char* memory = device_bytes(8);
  const cudaStream_t producer = new_stream(), consumer = new_stream();
  cudaEvent_t begin = nullptr, middle = nullptr, end = nullptr;
  for (cudaEvent_t* event : {&begin, &middle, &end}) SUCCEEDS(cudaEventCreate(event));
  SUCCEEDS(cudaEventRecord(begin, producer));
  for (int i = 0; i < 3; ++i) SUCCEEDS(cudaMemsetAsync(memory, i, 8, producer));
  SUCCEEDS(cudaEventRecord(middle, producer));
  SUCCEEDS(cudaStreamWaitEvent(consumer, middle));
  SUCCEEDS(cudaMemsetAsync(memory, 9, 8, consumer));
  SUCCEEDS(cudaEventRecord(end, consumer));
  float milliseconds = 0;
  EXPECT_EQ(cudaEventElapsedTime(&milliseconds, begin, end), cudaErrorNotReady);
  SUCCEEDS(cudaStreamSynchronize(consumer));
  SUCCEEDS(cudaEventElapsedTime(&milliseconds, begin, end));
  EXPECT_FLOAT_EQ(milliseconds, 4 * kCopyUs * 1e-3);
  SUCCEEDS(cudaEventElapsedTime(&milliseconds, begin, middle));
  EXPECT_FLOAT_EQ(milliseconds, 3 * kCopyUs * 1e-3);
}

TEST_F(SimulatedQueue, EventsWithoutATimeOrARecordTellNone) {
  const cudaStream_t stream = new_stream();
  cudaEvent_t timed = nullptr;
  const cudaEvent_t untimed = new_event();
  SUCCEEDS(cudaEventCreate(&timed));
  float milliseconds = 0;
  EXPECT_EQ(cudaEventElapsedTime(&milliseconds, timed, timed), cudaErrorInvalidResourceHandle);
  for (const cudaEvent_t event : {timed, untimed}) SUCCEEDS(cudaEventRecord(event, stream));
  SUCCEEDS(cudaStreamSynchronize(stream));
  EXPECT_EQ(cudaEventElapsedTime(&milliseconds, timed, untimed), cudaErrorInvalidResourceHandle);
  SUCCEEDS(cudaEventElapsedTime(&milliseconds, timed, timed));
  EXPECT_EQ(milliseconds, 0);
}

// The consumer waits only for the first record. The work before the second record may still be
// queued.
TEST_F(SimulatedQueue, AWaitIsForTheRecordMadeBefore) {
  int left = 0;
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    begin_with_seed(seed);
    unsigned char* memory = device_bytes(1);
    const cudaStream_t producer = new_stream(), consumer = new_stream();
    const cudaEvent_t event = new_event();
    SUCCEEDS(cudaEventRecord(event, producer));
    SUCCEEDS(cudaStreamWaitEvent(consumer, event));
    SUCCEEDS(cudaMemsetAsync(memory, 1, 1, producer));
    SUCCEEDS(cudaEventRecord(event, producer));
    SUCCEEDS(cudaStreamSynchronize(consumer));
    left += queued() == 2 ? 1 : 0;
  }
  EXPECT_GT(left, 20);
}

TEST_F(SimulatedQueue, AnEventNeverRecordedIsDone) {
  const cudaEvent_t event = new_event();
  EXPECT_EQ(cudaEventQuery(event), cudaSuccess);
  EXPECT_EQ(cudaEventSynchronize(event), cudaSuccess);
}

TEST_F(SimulatedQueue, WaitingForAnEventRunsWhatIsBeforeItsRecord) {
  unsigned char* memory = device_bytes(1);
  const cudaStream_t stream = new_stream();
  const cudaEvent_t event = new_event();
  SUCCEEDS(cudaMemsetAsync(memory, 1, 1, stream));
  SUCCEEDS(cudaEventRecord(event, stream));
  SUCCEEDS(cudaEventSynchronize(event));
  EXPECT_EQ(queued(), 0u);
}

TEST_F(SimulatedQueue, APollerDoesNotStarve) {
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    begin_with_seed(seed);
    unsigned char* memory = device_bytes(1);
    const cudaStream_t first = new_stream(), second = new_stream();
    const cudaEvent_t between = new_event(), event = new_event();
    SUCCEEDS(cudaMemsetAsync(memory, 1, 1, first));
    SUCCEEDS(cudaEventRecord(between, first));
    SUCCEEDS(cudaStreamWaitEvent(second, between));
    SUCCEEDS(cudaEventRecord(event, second));
    int asked = 0;
    while (cudaEventQuery(event) == cudaErrorNotReady) ++asked;
    EXPECT_GE(asked, 1);
    EXPECT_LE(asked, 4 * 8) << "four pieces of work, one for every eighth question";
  }
}

// Queues a fill with 1 on `first`, then a fill with 2 on `second`. Returns how often 1 remains.
int times_first_is_last(unsigned flags, bool first_is_legacy) {
  int times = 0;
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    Settings settings;
    settings.seed = seed;
    reset(settings);
    unsigned char* memory = device_bytes(1);
    const cudaStream_t made = new_stream(flags);
    const cudaStream_t first = first_is_legacy ? nullptr : made;
    const cudaStream_t second = first_is_legacy ? made : nullptr;
    EXPECT_EQ(cudaMemsetAsync(memory, 1, 1, first), cudaSuccess);
    EXPECT_EQ(cudaMemsetAsync(memory, 2, 1, second), cudaSuccess);
    times += read(memory, 1)[0] == 1 ? 1 : 0;
  }
  return times;
}

TEST_F(SimulatedQueue, TheLegacyStreamKeepsOrderWithStreamsThatBlock) {
  EXPECT_EQ(times_first_is_last(cudaStreamDefault, true), 0);
  EXPECT_EQ(times_first_is_last(cudaStreamDefault, false), 0);
}

TEST_F(SimulatedQueue, TheLegacyStreamKeepsNoOrderWithOthers) {
  for (const bool first_is_legacy : {false, true}) {
    const int times = times_first_is_last(cudaStreamNonBlocking, first_is_legacy);
    EXPECT_GT(times, 20);
    EXPECT_LT(times, 80);
  }
}

TEST_F(SimulatedQueue, HostFunctionsRunInOrderOnAnotherThread) {
  struct Seen {
    std::atomic<int> calls{0};
    std::thread::id thread;
  } seen;
  const cudaStream_t stream = new_stream();
  const auto function = [](void* data) {
    static_cast<Seen*>(data)->thread = std::this_thread::get_id();
    ++static_cast<Seen*>(data)->calls;
  };
  for (int i = 0; i < 3; ++i) SUCCEEDS(cudaLaunchHostFunc(stream, function, &seen));
  EXPECT_EQ(seen.calls, 0);
  SUCCEEDS(cudaStreamSynchronize(stream));
  EXPECT_EQ(seen.calls, 3);
  EXPECT_NE(seen.thread, std::this_thread::get_id());
}

// Late work sees a value that the host wrote after the call. Early work shows this error.
TEST_F(SimulatedQueue, EarlyWorkFindsAHostThatFillsTooLate) {
  int late = 0;
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    Settings settings;
    settings.seed = seed;
    settings.early = 0.5;
    begin(settings);
    unsigned char* memory = device_bytes(1);
    unsigned char* source = pinned_bytes(1);
    *source = 1;
    const cudaStream_t stream = new_stream();
    SUCCEEDS(cudaMemcpyAsync(memory, source, 1, cudaMemcpyHostToDevice, stream));
    *source = 2;
    late += read(memory, 1)[0] == 1 ? 1 : 0;
  }
  EXPECT_GT(late, 25);
  EXPECT_LT(late, 75);
}

TEST_F(SimulatedQueue, ACaptureRunsWhenItsGraphIsLaunched) {
  unsigned char* memory = device_bytes(2);
  unsigned char* pinned = pinned_bytes(1);
  const cudaStream_t stream = new_stream();
  SUCCEEDS(cudaMemset(memory, 0, 2));
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t ready = nullptr;
  cudaStreamCaptureStatus status{};
  SUCCEEDS(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  SUCCEEDS(cudaStreamIsCapturing(stream, &status));
  EXPECT_EQ(status, cudaStreamCaptureStatusActive);
  SUCCEEDS(cudaMemcpyAsync(memory, pinned, 1, cudaMemcpyHostToDevice, stream));
  SUCCEEDS(cudaStreamEndCapture(stream, &graph));
  SUCCEEDS(cudaGraphInstantiate(&ready, graph));
  SUCCEEDS(cudaGraphDestroy(graph));
  for (const unsigned char value : {3, 4}) {
    *pinned = value;
    SUCCEEDS(cudaGraphLaunch(ready, stream));
    EXPECT_EQ(read(memory, 2), (std::vector<unsigned char>{value, 0}));
  }
  SUCCEEDS(cudaGraphExecDestroy(ready));
}

TEST_F(SimulatedQueue, EachThreadHasACurrentDevice) {
  SUCCEEDS(cudaSetDevice(1));
  int device = -1;
  std::thread([&device] { EXPECT_EQ(cudaGetDevice(&device), cudaSuccess); }).join();
  EXPECT_EQ(device, 0);
  SUCCEEDS(cudaGetDevice(&device));
  EXPECT_EQ(device, 1);
  EXPECT_EQ(cudaSetDevice(2), cudaErrorInvalidDevice);
}

TEST_F(SimulatedQueue, AContextIsMadeWhereOneIsNeededAndByMakingADeviceCurrent) {
  reset();
  int device = -1;
  std::thread([&] {
    EXPECT_EQ(cudaGetDevice(&device), cudaSuccess);
    cudaDeviceProp properties;
    EXPECT_EQ(cudaGetDeviceProperties(&properties, 0), cudaSuccess);
    EXPECT_TRUE(contexts().empty());
    EXPECT_EQ(cudaSetDevice(1), cudaSuccess);
    EXPECT_EQ(contexts(), std::set<int>{1});
  }).join();
  std::thread([] { (void)new_stream(); }).join();
  EXPECT_EQ(contexts(), (std::set<int>{0, 1}));
}

TEST_F(SimulatedQueue, AnEventOrdersStreamsOfTwoDevices) {
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    begin_with_seed(seed);
    unsigned char* here = device_bytes(1);
    const cudaStream_t producer = new_stream();
    const cudaEvent_t ready = new_event();
    SUCCEEDS(cudaMemsetAsync(here, 9, 1, producer));
    SUCCEEDS(cudaEventRecord(ready, producer));
    SUCCEEDS(cudaSetDevice(1));
    unsigned char* there = device_bytes(1);
    const cudaStream_t consumer = new_stream();
    SUCCEEDS(cudaStreamWaitEvent(consumer, ready));
    SUCCEEDS(cudaMemcpyAsync(there, here, 1, cudaMemcpyDefault, consumer));
    EXPECT_EQ(read(there, 1)[0], 9);
    EXPECT_EQ(cudaEventRecord(ready, consumer), cudaErrorInvalidResourceHandle);
  }
}

}  // namespace penstock::simulated::queue_test
