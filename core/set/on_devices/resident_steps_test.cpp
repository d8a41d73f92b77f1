// A step of device-resident gradients: its cost, the reports about it, and its failures.

#include "core/set/on_devices/resident_testing.hpp"

#include <cuda_runtime_api.h>

#include <future>

namespace penstock::resident_steps_test {
namespace {

using namespace testing;  // every name in resident_testing.hpp

// ---- cost of a step ----

struct Cost {
  uint64_t launches, to_host, to_device, host_memory, device_memory, events;
  static Cost now() {
    using simulated::Call;
    const simulated::Copied copied = simulated::copied();
    return {simulated::calls(Call::kLaunch),
            copied.to_host,
            copied.to_device,
            simulated::calls(Call::kHostAllocate),
            simulated::calls(Call::kAllocate),
            simulated::calls(Call::kEventCreate)};
  }
};

// The cost of `steps` of `size` ranks, with one gradient of each size in one bucket. The steps must
// neither wait for a device nor allocate.
Cost cost_of_steps(const std::vector<int64_t>& sizes, uint32_t size, uint64_t n_steps,
                   const std::string& scheme = resident_scheme(kResidentMethods[1].keys)) {
  const SimulatedDevices devices;
  std::atomic<uint32_t> at{0};
  Cost before{}, after{};
  // The counters belong to the process, so all ranks wait while rank 0 reads them.
  const auto meet = [&](uint32_t rank, Cost& cost) {
    const uint32_t round = at.fetch_add(1) / size;
    while (at.load() < (round + 1) * size) std::this_thread::yield();
    if (rank == 0) cost = Cost::now();
    const uint32_t next = at.fetch_add(1) / size;
    while (at.load() < (next + 1) * size) std::this_thread::yield();
  };
  with_device_ranks(size, scheme, [&](Runtime& runtime, uint32_t rank) {
    std::vector<GradientShape> shapes;
    for (const int64_t n : sizes)
      shapes.push_back({fmt::format("x{}", shapes.size()),
                        {n},
                        PENSTOCK_FLOAT32,
                        PENSTOCK_NO_BUCKET,
                        0,
                        by_rank(rank, 0)});
    std::vector<Storage> storage = storage_of(shapes);
    auto set = make_set(runtime, shapes);
    ASSERT_OK(set.status());
    ASSERT_EQ(report_of(**set)["buckets"].size(), 1u);
    for (size_t i = 0; i < storage.size(); ++i) {
      storage[i].write(std::vector<float>(size_t(sizes[i]), 1));
      storage[i].settle();
    }
    const auto steps = [&](uint64_t n) {
      for (uint64_t step = 0; step < n; ++step) {
        for (size_t i = storage.size(); i-- > 0;)
          ASSERT_OK(set.value()->gradient_ready(i, storage[i].tensor(), storage[i].stream()));
        ASSERT_OK(end_step(**set, storage, testing::Waits(step % 4), true));
      }
    };
    steps(4);
    const uint64_t waits_before = simulated::waits_of_this_thread().total();
    meet(rank, before);
    steps(n_steps);
    meet(rank, after);
    EXPECT_EQ(simulated::waits_of_this_thread().total(), waits_before);
    penstock_counters counters{};
    counters.struct_size = sizeof counters;
    set.value()->counters(counters);
    // The engine has its own thread.
    ASSERT_OK(runtime.engine().run([] {
      EXPECT_EQ(simulated::waits_of_this_thread().total(), 0u);
      return Status();
    }));
  });
  EXPECT_EQ(after.host_memory, before.host_memory);
  EXPECT_EQ(after.device_memory, before.device_memory);
  EXPECT_EQ(after.events, before.events);
  after.launches -= before.launches;
  after.to_host -= before.to_host;
  after.to_device -= before.to_device;
  return after;
}

constexpr uint64_t kRanks = 3, kSteps = 6;

// The bytes that a rank sends for a gradient of n elements.
constexpr uint64_t pair_bytes(uint64_t n) {
  return uint64_t(kDensity * double(n)) * 8;
}

TEST(Residents, NobodyWaitsNothingIsAllocatedAndOnlyPayloadsCrossTheBus) {
  const Cost cost = cost_of_steps({10000}, kRanks, kSteps);
  const uint64_t rank_steps = kSteps * kRanks;
  // One inspection of the gradient, eight launches of the selection, one sum.
  EXPECT_EQ(cost.launches, 10 * rank_steps);
  // The rank's own payload, and the flag from the inspection.
  EXPECT_EQ(cost.to_host, (pair_bytes(10000) + sizeof(uint32_t)) * rank_steps);
  EXPECT_EQ(cost.to_device, pair_bytes(10000) * (kRanks - 1) * rank_steps);
}

// The scheduler reads the times of the calls and keeps its plan. The measurement adds only marks in
// the stream.
TEST(Residents, OfASchedulerThatPlansByWhatTheyTakeAreTimedWithoutAWaitALaunchOrAnAllocation) {
  std::string scheme = resident_scheme("memory = \"residual-simulated\"\nscheduler = \"witness\"");
  scheme.replace(scheme.find("plugins/witness"), 15, "plugins/patient_witness");
  const Cost cost = cost_of_steps({10000}, kRanks, kSteps, scheme);
  const uint64_t rank_steps = kSteps * kRanks;
  EXPECT_EQ(cost.launches, 10 * rank_steps);
  EXPECT_EQ(cost.to_host, (pair_bytes(10000) + sizeof(uint32_t)) * rank_steps);
  EXPECT_EQ(cost.to_device, pair_bytes(10000) * (kRanks - 1) * rank_steps);
}

TEST(Residents, ABucketOfManyGradientsTakesAsFewLaunchesAsOneOfASingleGradient) {
  constexpr uint64_t kGradients = 19;  // one launch begins at most this many selections
  std::vector<int64_t> sizes;
  uint64_t bytes = 0;
  for (uint64_t i = 0; i < kGradients; ++i) {
    const uint64_t kept = 10 + 2 * i;  // even, so that payloads are adjacent
    sizes.push_back(int64_t(double(kept) / kDensity));
    bytes += kept * 8;
  }
  const Cost cost = cost_of_steps(sizes, kRanks, kSteps);
  const uint64_t rank_steps = kSteps * kRanks;
  EXPECT_EQ(cost.launches, 10 * rank_steps);
  EXPECT_EQ(cost.to_host, (bytes + kGradients * sizeof(uint32_t)) * rank_steps);
  EXPECT_EQ(cost.to_device, bytes * (kRanks - 1) * rank_steps);
}

TEST(Residents, ANormOfAllRanksBringsOneNumberOfEachGradientToTheHost) {
  const ResidentMethod method{"", kWithDgc, 0, "topk-simulated",
                              "density = 0.05\nvalue_type = "
                              "\"fp32\"\n[memory.dgc-simulated]\nclipping = \"norm_global\"\n"};
  const Cost cost = cost_of_steps({10000, 20000}, kRanks, kSteps, resident_scheme(method));
  const uint64_t rank_steps = kSteps * kRanks;
  // One inspection, eight launches of the selection, one sum. For each gradient, also two launches
  // for a norm of one tile or three for a norm of two tiles, one for compensate and one for mask.
  EXPECT_EQ(cost.launches, (10 + 5 + 4) * rank_steps);
  EXPECT_EQ(cost.to_host,
            (pair_bytes(30000) + 2 * sizeof(uint32_t) + 2 * sizeof(float)) * rank_steps);
  EXPECT_EQ(cost.to_device, pair_bytes(30000) * (kRanks - 1) * rank_steps);
}

// Backward still runs while finished gradients are sent. It reaches the last parameter first.
TEST(Residents, AreWorkedOnWhileALaterOneIsStillComputed) {
  const SimulatedDevices devices;
  with_device_ranks(1, resident_scheme(kResidentMethods[0].keys), [&](Runtime& runtime, uint32_t) {
    const auto shapes = lying_on({{"late", {300}}, {"early", {300}}}, on_cuda(0));
    std::vector<Storage> storage = storage_of(shapes);
    auto set = make_set(runtime, shapes);
    ASSERT_OK(set.status());
    std::promise<void> computed;
    const auto is_computed = computed.get_future().share();
    for (Storage& one : storage) one.write(std::vector<float>(300, 1));
    ASSERT_EQ(cudaLaunchHostFunc(
                  static_cast<cudaStream_t>(storage[0].stream()),
                  [](void* until) { static_cast<std::shared_future<void>*>(until)->wait(); },
                  const_cast<std::shared_future<void>*>(&is_computed)),
              cudaSuccess);
    for (size_t i : {1, 0})
      ASSERT_OK(set.value()->gradient_ready(i, storage[i].tensor(), storage[i].stream()));
    auto early = std::async(std::launch::async, [&] { return set.value()->wait(1); });
    EXPECT_EQ(early.wait_for(std::chrono::seconds(10)), std::future_status::ready);
    computed.set_value();
    ASSERT_OK(early.get());
    ASSERT_OK(set.value()->wait_all());
    ASSERT_OK(set.value()->step_end(true));
    for (Storage& one : storage) one.settle();
  });
}

// ---- reports and warnings ----

TEST(Residents, ReportAndWarningSayWhatIsStagedAndWhy) {
  const SimulatedDevices devices;
  ::testing::internal::CaptureStderr();
  const std::string scheme = resident_scheme(kResidentMethods[1].keys, kDoublesAsTheyAre);
  with_device_ranks(2, scheme, [&](Runtime& runtime, uint32_t) {
    std::vector<GradientShape> shapes = lying_on({{"there", {300}}, {"doubles", {30}}}, on_cuda(1));
    shapes[1].dtype = PENSTOCK_FLOAT64;
    shapes.push_back({"elsewhere", {40}, PENSTOCK_FLOAT32, PENSTOCK_NO_BUCKET, 0, on_cuda(0)});
    shapes.push_back({"here", {3}});
    auto set = make_set(runtime, shapes);
    ASSERT_OK(set.status());
    const auto report = report_of(**set);
    EXPECT_EQ(report["staged_bytes"], 240 + 160);
    std::map<std::string, std::pair<std::string, std::string>> places;
    each_item(report, [&](const nlohmann::json& item) {
      places[item["gradient"].get<std::string>()] = {item["worked_on"].get<std::string>(),
                                                     item["why_staged"].get<std::string>()};
      EXPECT_EQ(item["staged"], item["why_staged"] != "");
    });
    EXPECT_EQ(places["there"], std::pair(std::string("cuda:1"), std::string()));
    EXPECT_EQ(places["here"], std::pair(std::string("the CPU"), std::string()));
    EXPECT_EQ(places["doubles"].second, "it is float64, expected float32, float16 or bfloat16");
    EXPECT_EQ(places["elsewhere"].second, "this set works on cuda:1 already");
  });
  const std::string log = ::testing::internal::GetCapturedStderr();
  for (const char* part : {"set 'model': 1 gradients on cuda:0, 1 gradients on cuda:1 go through",
                           "it is float64, expected float32, float16 or bfloat16 ('doubles')"})
    EXPECT_NE(log.find(part), std::string::npos) << log;
}

// The reason in the report for the only gradient, which is float32 on a device.
std::string reason_under(const std::string& scheme, uint32_t flags = 0) {
  const SimulatedDevices devices;
  std::string why;
  ::testing::internal::CaptureStderr();
  with_device_ranks(1, scheme, [&](Runtime& runtime, uint32_t) {
    auto set = make_set(runtime, lying_on({{"x", {40}}}, on_cuda(0)), flags);
    ASSERT_OK(set.status());
    each_item(report_of(**set),
              [&](const nlohmann::json& item) { why = item["why_staged"].get<std::string>(); });
  });
  (void)::testing::internal::GetCapturedStderr();
  return why;
}

TEST(Residents, WhatHasNoWayOnADeviceIsStagedForAReason) {
  const std::string residual = "memory = \"residual-simulated\"\nscheduler = \"wfbp\"";
  EXPECT_EQ(reason_under(resident_scheme(residual)), "");
  EXPECT_EQ(reason_under(resident_scheme(residual, "scope = \"bucket\"\n")),
            "compressor \"topk-simulated\" works on the CPU only (its build or its options)");
  const ResidentMethod signs{"", kWithResidual, 0, "topk-simulated", "value_type = \"sign\"\n"};
  EXPECT_EQ(reason_under(resident_scheme(signs)),
            "compressor \"topk-simulated\" works on the CPU only (its build or its options)");
  const ResidentMethod halves{"", kWithResidual, 0, "topk-simulated",
                              "density = 0.05\nvalue_type = \"fp16\"\n"};
  EXPECT_EQ(reason_under(resident_scheme(halves)), "");
  EXPECT_EQ(reason_under(resident_scheme("memory = \"dgc\"\nscheduler = \"wfbp\"")),
            "memory \"dgc\" was built for the CPU only");
  EXPECT_EQ(reason_under(resident_scheme(residual + "\nroute = \"shard\"")), "");
  EXPECT_EQ(reason_under(resident_scheme(residual + "\nroute = \"hierarchical\"")),
            "the ranks of a host add it in host memory, because no transport.device is named");
  EXPECT_EQ(
      reason_under(resident_scheme(residual + "\nroute = \"shard\"\nowner_memory = \"residual\"")),
      "memory \"residual\" was built for the CPU only");
  const auto with_switch = [&](const std::string& change) {
    return reason_under(
        resident_scheme(residual, "[[switch]]\nat_step = 5\nset = { " + change + " }\n"));
  };
  EXPECT_EQ(with_switch("compressor.topk-simulated.density = 0.2"), "");
  EXPECT_EQ(
      with_switch("scheme.compressor = \"randomk\""),
      "compressor \"randomk\" works on the CPU only (its build or its options), from step 5 on");
  EXPECT_EQ(with_switch("scheme.route = \"shard\""),
            "route \"flat\" gives way to \"shard\", from step 5 on");
  EXPECT_EQ(with_switch("scheme.memory = \"none\""),
            "memory \"residual-simulated\" gives way to \"none\", from step 5 on");
  EXPECT_EQ(reason_under(resident_scheme(residual), PENSTOCK_SET_DEFERRED_UPDATE), "");
  const ResidentMethod deferred{"halves", "memory = \"none\"\nscheduler = \"dear\"", 0,
                                "fp16-simulated", ""};
  EXPECT_EQ(reason_under(resident_scheme(deferred), PENSTOCK_SET_DEFERRED_UPDATE),
            "scheduler \"dear\" lets the next forward wait for it");
}

// ---- failures ----

// Every rank learns of the failure, one rank gets the device's message, and no rank can continue.
void expect_run_to_end() {
  std::atomic<int> n_with_words = 0;
  const Script script = resident_script(kResidentMethods[1], 3);
  with_device_ranks(script.size, script.scheme, [&](Runtime& runtime, uint32_t rank) {
    const auto shapes = placed(script, by_rank, rank);
    std::vector<Storage> storage = storage_of(shapes);
    auto set = make_set(runtime, shapes);
    ASSERT_OK(set.status());
    for (Storage& one : storage) one.write(std::vector<float>(one.bytes() / sizeof(float), 1));
    Status status;
    for (uint64_t step = 0; step < 30 && status.ok(); ++step)
      status = [&]() -> Status {
        for (size_t i = storage.size(); i-- > 0;)
          PENSTOCK_TRY(set.value()->gradient_ready(i, storage[i].tensor(), storage[i].stream()));
        return end_step(**set, storage, testing::Waits(step % 4), step % 6 != 2);
      }();
    const bool has_words = contains(status.message(), "cuda:") &&
                           contains(status.message(), "cannot") &&
                           contains(status.message(), "(error 719)");
    EXPECT_TRUE(has_words || contains(status.message(), "aborted by rank")) << status.message();
    if (has_words) ++n_with_words;
    for (const Storage& one : storage) one.settle();
    EXPECT_TRUE(contains(set.value()->wait_all().message(), "is torn"));
  });
  EXPECT_GT(n_with_words, 0);
}

TEST(Residents, ACallThatFailsInTheMiddleOfAStepEndsTheRunOnEveryRank) {
  using simulated::Call;
  // A rank's step has one fill, and each state has two fills before the first step.
  const std::pair<Call, std::array<uint64_t, 3>> calls[] = {{Call::kLaunch, {60, 95, 130}},
                                                            {Call::kCopy, {60, 95, 130}},
                                                            {Call::kFill, {32, 53, 77}},
                                                            {Call::kEventRecord, {60, 95, 130}}};
  for (const auto& [call, nths] : calls)
    for (const uint64_t nth : nths) {
      const SimulatedDevices devices(nth);
      simulated::fail_call(call, nth, 719);
      ::testing::internal::CaptureStderr();
      expect_run_to_end();
      (void)::testing::internal::GetCapturedStderr();
    }
}

TEST(Residents, AKernelThatFailsLosesTheDeviceAndWhatLiesThereIsAbandoned) {
  for (const uint64_t nth : {5, 70, 200}) {
    simulated::reset();
    simulated::fail_work(simulated::Call::kLaunch, nth, 719);
    ::testing::internal::CaptureStderr();
    expect_run_to_end();
    const std::string log = ::testing::internal::GetCapturedStderr();
    EXPECT_TRUE(contains(log,
                         "staging buffers, messages and states on the device of set 'model' are "
                         "abandoned, not freed: cuda:"))
        << log;
    for (const auto& report : simulated::reports()) ADD_FAILURE() << report.sentence;
  }
  simulated::reset();
}

// Kernels use indices unchecked, so the indices of a peer are checked first. The gradient of rank 1
// lies on the CPU, and so does this compressor.
TEST(Residents, IndicesOfAPeerThatDoNotAscendAreRefused) {
  const SimulatedDevices devices;
  std::string scheme = resident_scheme(kResidentMethods[0].keys);
  for (size_t at; (at = scheme.find("topk")) != std::string::npos;) scheme.replace(at, 4, "liar");
  ::testing::internal::CaptureStderr();
  with_device_ranks(2, scheme, [&](Runtime& runtime, uint32_t rank) {
    const std::vector<GradientShape> shapes{
        {"x", {100}, PENSTOCK_FLOAT32, PENSTOCK_NO_BUCKET, 0, rank == 0 ? on_cuda(0) : Place()}};
    std::vector<Storage> storage = storage_of(shapes);
    auto set = make_set(runtime, shapes);
    ASSERT_OK(set.status());
    const Status status = exchange_ones(**set, storage[0]);
    if (rank == 0) {
      EXPECT_EQ(status.code(), Code::invalid_payload);
      EXPECT_TRUE(contains(status.message(),
                           "the message of rank 1 for gradient 'x' has index 0 at entry 1, "
                           "expected ascending ones below 100"))
          << status.message();
    }
    storage[0].settle();
  });
  (void)::testing::internal::GetCapturedStderr();
}

TEST(Residents, MemoryThatADeviceDoesNotGiveIsNamed) {
  const SimulatedDevices devices;
  simulated::leave_memory(0, 1 << 20);
  with_device_ranks(1, resident_scheme(kResidentMethods[0].keys), [&](Runtime& runtime, uint32_t) {
    const auto set = make_set(runtime, lying_on({{"x", {1 << 20}}}, on_cuda(0)));
    ASSERT_FALSE(set.ok());
    EXPECT_TRUE(contains(set.status().message(), "for gradient 'x'")) << set.status().message();
    EXPECT_TRUE(contains(set.status().message(), "cuda:0 does not get 4194304 bytes of its own"))
        << set.status().message();
  });
}

}  // namespace
}  // namespace penstock::resident_steps_test
