// A step of gradients on devices: which calls wait, which gradients a rank may hand in, and
// reports.

#include "core/set/on_devices/device_testing.hpp"

#include <nlohmann/json.hpp>

#include <condition_variable>
#include <mutex>
#include <set>

namespace penstock::device_steps_test {
namespace {

using namespace testing;  // every name in device_testing.hpp

const std::string kDense = scheme_text("scheduler = \"wfbp\"");
const std::vector<GradientShape> kShapes{{"weight", {40, 30}}, {"bias", {7}}, {"empty", {0}}};
const std::vector<GradientShape> kOnDevice = lying_on(kShapes, on_cuda(0));

std::vector<Storage> storage_of(const std::vector<GradientShape>& shapes) {
  std::vector<Storage> storage;
  for (const GradientShape& shape : shapes) storage.emplace_back(shape);
  return storage;
}

void fill(std::vector<Storage>& storage, float value) {
  for (size_t i = 0; i < storage.size(); ++i)
    storage[i].write(std::vector<float>(storage[i].bytes() / sizeof(float), value));
}

Status hand_in(Set& set, const std::vector<Storage>& storage) {
  for (size_t i = storage.size(); i-- > 0;)
    PENSTOCK_TRY(set.gradient_ready(i, storage[i].tensor(), storage[i].stream()));
  return {};
}

std::string copies_of(float value, const Storage& storage) {
  const std::vector<float> values(storage.bytes() / sizeof(float), value);
  return {reinterpret_cast<const char*>(values.data()), storage.bytes()};
}

TEST(DeviceSteps, NobodyWaitsForADeviceAndNothingIsAllocated) {
  const SimulatedDevices devices;
  with_device_ranks(2, kDense, [&](Runtime& runtime, uint32_t rank) {
    std::vector<Storage> storage = storage_of(kOnDevice);
    auto set = make_set(runtime, kOnDevice);
    ASSERT_OK(set.status());
    penstock_counters counters{};
    counters.struct_size = sizeof counters;
    for (uint64_t step = 0; step < 8; ++step) {
      const uint64_t waits_before = simulated::waits_of_this_thread().total();
      const uint64_t memory_before =
          simulated::calls_of_this_thread(simulated::Call::kHostAllocate) +
          simulated::calls_of_this_thread(simulated::Call::kEventCreate);
      fill(storage, float(rank + step));
      ASSERT_OK(hand_in(**set, storage));
      ASSERT_OK(end_step(**set, storage, testing::Waits(step % 4), true));
      EXPECT_EQ(simulated::waits_of_this_thread().total(), waits_before) << step;
      EXPECT_EQ(simulated::calls_of_this_thread(simulated::Call::kHostAllocate) +
                    simulated::calls_of_this_thread(simulated::Call::kEventCreate),
                memory_before);
      for (const Storage& one : storage) EXPECT_EQ(one.read(), copies_of(float(step) + 0.5f, one));
    }
    set.value()->counters(counters);
    // The engine has its own thread.
    ASSERT_OK(runtime.engine().run([] {
      EXPECT_EQ(simulated::waits_of_this_thread().total(), 0u);
      return Status();
    }));
  });
}

TEST(DeviceSteps, WorkBehindWaitStreamSeesTheResultAndTheHostGoesOn) {
  const SimulatedDevices devices;
  with_device_ranks(2, kDense, [&](Runtime& runtime, uint32_t rank) {
    std::vector<Storage> storage = storage_of(kOnDevice);
    auto set = make_set(runtime, kOnDevice);
    ASSERT_OK(set.status());
    for (uint64_t step = 0; step < 6; ++step) {
      fill(storage, float(rank + step));
      ASSERT_OK(hand_in(**set, storage));
      for (size_t i = 0; i < storage.size(); ++i)
        ASSERT_OK(set.value()->wait_stream(i, storage[i].stream()));
      ASSERT_OK(set.value()->step_end(true));
      for (const Storage& one : storage) EXPECT_EQ(one.read(), copies_of(float(step) + 0.5f, one));
    }
  });
}

TEST(DeviceSteps, TheNullStreamIsTheLegacyDefaultStream) {
  const SimulatedDevices devices;
  with_device_ranks(2, kDense, [&](Runtime& runtime, uint32_t rank) {
    const auto shapes = lying_on({{"x", {500}}}, on_cuda(int32_t(rank)));
    std::vector<Storage> storage = storage_of(shapes);
    auto set = make_set(runtime, shapes);
    ASSERT_OK(set.status());
    auto upload = PinnedMemory::make(Device(penstock_device, int32_t(rank)), storage[0].bytes());
    ASSERT_OK(upload.status());
    std::fill_n(reinterpret_cast<float*>(upload->data()), 500, float(rank));
    const penstock_tensor tensor = storage[0].tensor();
    ASSERT_EQ(penstock_device.copy_to_device(int32_t(rank), tensor.data, upload->data(),
                                             storage[0].bytes(), nullptr),
              0);
    ASSERT_OK(set.value()->gradient_ready(0, tensor, nullptr));
    ASSERT_OK(set.value()->wait_stream(0, nullptr));
    ASSERT_EQ(penstock_device.copy_to_host(int32_t(rank), upload->data(), tensor.data,
                                           storage[0].bytes(), nullptr),
              0);
    ASSERT_EQ(penstock_device.stream_wait(int32_t(rank), nullptr), 0);
    EXPECT_EQ(*reinterpret_cast<float*>(upload->data()), 0.5f);
    ASSERT_OK(set.value()->step_end(true));
  });
}

TEST(DeviceSteps, ATensorElsewhereThanDeclaredIsRefusedByName) {
  const SimulatedDevices devices;
  with_device_ranks(1, kDense, [&](Runtime& runtime, uint32_t) {
    const std::vector<GradientShape> shapes = {
        {"there", {3}, PENSTOCK_FLOAT32, PENSTOCK_NO_BUCKET, 0, on_cuda(0)}, {"here", {3}}};
    const std::vector<Storage> right = storage_of(shapes);
    const std::vector<Storage> other = storage_of(lying_on({{"x", {3}}}, on_cuda(1)));
    auto set = make_set(runtime, shapes);
    ASSERT_OK(set.status());
    const auto refused = [&](size_t index, const Storage& storage, const char* why) {
      for (const Status& status : {set.value()->gradient_ready(index, storage.tensor()),
                                   set.value()->gradient_absent(index, storage.tensor())})
        EXPECT_NE(status.message().find(why), std::string_view::npos) << status.message();
    };
    refused(0, other[0], "gradient 'there' lies on cuda:1, expected cuda:0");
    refused(0, right[1], "gradient 'there' lies on the CPU, expected cuda:0");
    refused(1, right[0], "gradient 'here' lies on cuda:0, expected the CPU");
    ASSERT_OK(hand_in(**set, right));
    ASSERT_OK(set.value()->wait_all());
  });
}

TEST(DeviceSteps, PollIsDoneWhenTheResultLiesInItsTensor) {
  const SimulatedDevices devices;
  with_device_ranks(2, kDense, [&](Runtime& runtime, uint32_t rank) {
    std::vector<Storage> storage = storage_of(kOnDevice);
    auto set = make_set(runtime, kOnDevice);
    ASSERT_OK(set.status());
    fill(storage, float(rank));
    bool done = true;
    ASSERT_OK(set.value()->poll(0, done));
    EXPECT_FALSE(done);
    ASSERT_OK(hand_in(**set, storage));
    do {
      ASSERT_OK(set.value()->poll(0, done));
    } while (!done);
    EXPECT_EQ(storage[0].read(), copies_of(0.5f, storage[0]));
    ASSERT_OK(set.value()->step_end(true));
  });
}

// on_result comes only after the copy has ended. The test reads on a stream that waits for nothing.
TEST(DeviceSteps, ResultsAreToldWhereTheyLie) {
  struct Listener {
    std::mutex mutex;
    std::condition_variable changed;
    std::set<uint64_t> gradients;
    static void hear(void* context, const uint64_t* gradients, uint64_t n_gradients,
                     const penstock_status* error) {
      auto& self = *static_cast<Listener*>(context);
      EXPECT_EQ(error, nullptr);
      std::lock_guard lock(self.mutex);
      for (uint64_t i = 0; i < n_gradients; ++i)
        EXPECT_TRUE(self.gradients.insert(gradients[i]).second) << gradients[i];
      self.changed.notify_all();
    }
  };
  const SimulatedDevices devices;
  with_device_ranks(2, kDense, [&](Runtime& runtime, uint32_t rank) {
    std::vector<Storage> storage = storage_of(kOnDevice);
    auto set = make_set(runtime, kOnDevice);
    ASSERT_OK(set.status());
    Listener listener;
    ASSERT_OK(set.value()->on_result(&listener, Listener::hear));
    for (uint64_t step = 0; step < 4; ++step) {
      fill(storage, float(rank + step));
      ASSERT_OK(hand_in(**set, storage));
      {
        std::unique_lock lock(listener.mutex);
        listener.changed.wait(lock, [&] { return listener.gradients.size() == storage.size(); });
        listener.gradients.clear();
      }
      for (const Storage& one : storage) EXPECT_EQ(one.read(), copies_of(float(step) + 0.5f, one));
      ASSERT_OK(set.value()->step_end(true));
    }
  });
}

TEST(DeviceSteps, ReportAndLogSayWhatIsStaged) {
  const SimulatedDevices devices;
  ::testing::internal::CaptureStderr();
  with_device_ranks(2, kDense, [&](Runtime& runtime, uint32_t) {
    const std::vector<GradientShape> shapes = {
        {"there", {300}, PENSTOCK_FLOAT32, PENSTOCK_NO_BUCKET, 0, on_cuda(1)}, {"here", {3}}};
    auto set = make_set(runtime, shapes);
    ASSERT_OK(set.status());
    const auto text = set.value()->report();
    ASSERT_OK(text.status());
    const auto report = nlohmann::json::parse(text.value());
    EXPECT_EQ(nlohmann::json::parse(runtime.report().value())["cuda_devices"], 2);
    EXPECT_EQ(report["staged_bytes"], 1200);
    for (const auto& bucket : report["buckets"])
      for (const auto& item : bucket["items"]) {
        const bool there = item["gradient"] == "there";
        EXPECT_EQ(item["staged"], there);
        EXPECT_EQ(item["lies_on"], there ? "cuda:1" : "the CPU");
      }
  });
  const std::string log = ::testing::internal::GetCapturedStderr();
  const std::string line = "set 'model': 1 gradients on cuda:1 go through";
  const size_t first = log.find(line);
  ASSERT_NE(first, std::string::npos) << log;
  EXPECT_EQ(log.find(line, first + 1), std::string::npos) << log;
}

// A reset or load in the middle of a step first ends the copies, because the storage may be freed.
TEST(DeviceSteps, AResetInTheMiddleLeavesNoCopyUnderWay) {
  const SimulatedDevices devices;
  with_device_ranks(2, scheme_text("scheduler = \"syncea\""), [&](Runtime& runtime, uint32_t rank) {
    auto set = make_set(runtime, kOnDevice);
    ASSERT_OK(set.status());
    std::string saved;
    ASSERT_OK(set.value()->save(saved));
    for (const bool loads : {false, true}) {
      {
        std::vector<Storage> storage = storage_of(kOnDevice);
        storage[1].write(std::vector<float>(7, float(rank)));
        ASSERT_OK(set.value()->gradient_ready(1, storage[1].tensor(), storage[1].stream()));
        ASSERT_OK(loads ? set.value()->load(saved) : set.value()->reset());
      }
      std::vector<Storage> storage = storage_of(kOnDevice);
      fill(storage, float(rank));
      ASSERT_OK(hand_in(**set, storage));
      ASSERT_OK(set.value()->wait_all());
      for (const Storage& one : storage) EXPECT_EQ(one.read(), copies_of(0.5f, one));
      ASSERT_OK(set.value()->step_end(true));
    }
  });
}

}  // namespace
}  // namespace penstock::device_steps_test
