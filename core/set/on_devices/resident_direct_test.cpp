// Gradients on devices whose payloads go from device to device, over the simulated NCCL: results
// and memories' states equal the CPU's, no payload crosses the bus, and several sets share one
// order.

#include "core/set/on_devices/resident_testing.hpp"

#include <support/worlds.hpp>

namespace penstock::resident_direct_test {
namespace {

using namespace testing;  // every name in resident_testing.hpp

const ResidentMethod kMethods[] = {
    {"topk", kWithResidual},
    {"topk_one_by_one", kOneByOne},
    {"topk_for_sums", kWithResidual, PENSTOCK_SET_SUM},
    {"topk_with_dgc", kWithDgc},
    {"topk_told_of_void_buckets_first", kWithResidual, 0, "topk-simulated",
     "density = 0.05\nvalue_type = \"fp32\"\n", "nonfinite = \"strict\"\n"},
    {"topk_in_short_halves", kWithResidual, 0, "topk-simulated",
     "density = 0.1\nvalue_type = \"bf16\"\n"},
    {"topk_in_halves", kWithResidual, 0, "topk-simulated",
     "density = 0.1\nvalue_type = \"fp16\"\n"},
    {"topk_in_bytes", kWithResidual, 0, "topk-simulated", "density = 0.1\nvalue_type = \"int8\"\n"},
    {"threshold", kWithResidual, 0, "threshold-simulated",
     "threshold = 1.5\nvalue_type = \"fp32\"\n"},
    {"threshold_one_by_one_nothing_kept", "memory = \"none\"\nscheduler = \"wfbp\"", 0,
     "threshold-simulated", "threshold = 2.0\n"},
    {"redsync", kWithDgc, 0, "redsync-simulated", "density = 0.05\nvalue_type = \"fp32\"\n"},
    {"none", kNothingKept, 0, "none-simulated", ""},
    {"none_in_pieces", "memory = \"none\"\nscheduler = \"hipress\"", 0, "none-simulated", ""},
    {"none_for_sums", kNothingKept, PENSTOCK_SET_SUM, "none-simulated", ""},
    {"none_one_by_one", "memory = \"none\"\nscheduler = \"wfbp\"", 0, "none-simulated", ""},
    {"none_with_momentum", "memory = \"momentum-simulated\"\nscheduler = \"fusion\"", 0,
     "none-simulated", ""},
    {"topk_that_warms_up", kWithDgc, 0, "topk-simulated",
     "density = 0.3\nvalue_type = \"fp32\"\n"
     "[[switch]]\nat_step = 3\nset = { compressor.topk-simulated.density = 0.1 }\n"},
    {"signs_beside", kWithResidual, 0, "signsgd-simulated", ""},
    {"vectors_as_they_are", kWithResidual, 0, "topk-simulated",
     "density = 0.1\nvalue_type = \"fp32\"\n"
     "[[rule]]\nmatch = { dims = { max = 1 } }\ncompressor = \"none-simulated\"\n"
     "memory = \"none\"\n"},
};

// NCCL adds halves in its own order with its own roundings, and a device does so with factors.
struct NearMethod {
  ResidentMethod method;
  Bound bound;
};
inline void PrintTo(const NearMethod& near, std::ostream* out) {
  PrintTo(near.method, out);
}
constexpr Bound kFactors{1e-5, 1e-3}, kHalves{2e-3, 1e-2}, kShortHalves{2e-2, 8e-2};
const NearMethod kNearMethods[] = {
    {{"fp16", kWithResidual, 0, "fp16-simulated", ""}, kHalves},
    {{"bf16_with_dgc", kWithDgc, 0, "bf16-simulated", ""}, kShortHalves},
    {{"powersgd", kWithResidual, 0, "powersgd-simulated", "rank = 2\n"}, kFactors},
    {{"powersgd_one_by_one", kOneByOne, 0, "powersgd-simulated", "rank = 2\n"}, kFactors},
    {{"acpsgd", kWithResidual, 0, "acpsgd-simulated", "rank = 3\n"}, kFactors},
};

Script direct_script(const ResidentMethod& method, uint32_t size) {
  return resident_script(method, size, kOverNccl);
}

class Direct : public ::testing::TestWithParam<std::tuple<ResidentMethod, uint32_t>> {};
INSTANTIATE_TEST_SUITE_P(Methods, Direct,
                         ::testing::Combine(::testing::ValuesIn(kMethods),
                                            test::worlds({1, 2, 3, 4}, {3})),
                         testing::name_and_size);

TEST_P(Direct, GivesTheBitsOfTheCpu) {
  const auto& [method, size] = GetParam();
  expect_bits_of_the_cpu(direct_script(method, size), one_each, resident_script(method, size),
                         {1, test::is_long() ? 10u : 1u});
}

class NearDirect : public ::testing::TestWithParam<std::tuple<NearMethod, uint32_t>> {};
INSTANTIATE_TEST_SUITE_P(Methods, NearDirect,
                         ::testing::Combine(::testing::ValuesIn(kNearMethods),
                                            test::worlds({1, 2, 3, 4}, {3})),
                         [](const auto& info) {
                           return std::string(std::get<0>(info.param).method.name) + "_on_" +
                                  std::to_string(std::get<1>(info.param));
                         });

TEST_P(NearDirect, StaysNearTheCpuWithEqualBitsOnAllRanks) {
  const auto& [near, size] = GetParam();
  const ResidentOutcome expected = outcome_of(resident_script(near.method, size), on_the_cpu);
  const Script script = direct_script(near.method, size);
  ResidentOutcome first;
  for (uint64_t seed = 1; seed <= (test::is_long() ? 10 : 2) && !HasFailure(); ++seed) {
    const DevicesForAll devices(seed, seed % 2 == 0 ? 0.2 : 0, false);
    const ResidentOutcome got = outcome_of(script, one_each);
    if (seed == 1) first = got;
    expect_near(got, expected, near.bound);
    ASSERT_EQ(difference(got.results, first.results), "") << "seed " << seed;
    expect_alike(got, expected);
  }
}

// ---- paths of the data ----

Moved moved_in_a_step(const ResidentMethod& method, uint64_t numel,
                      std::optional<uint32_t> not_finite = {}) {
  return testing::moved_in_a_step(resident_scheme(method, kOverNccl), 2, numel, not_finite);
}

TEST(DirectMessages, NoPayloadCrossesTheBus) {
  constexpr uint64_t kNumel = 10000, kLook = 2 * sizeof(uint32_t);
  const Moved pairs = moved_in_a_step({"topk", kWithResidual}, kNumel);
  EXPECT_EQ(pairs.direct_messages, 1u);
  EXPECT_EQ(pairs.direct_bytes, uint64_t(kDensity * kNumel) * 8);
  // The flags of the checks: of the gradient, and of the indices of both ranks.
  EXPECT_EQ(pairs.copied.to_host, kLook + 2 * kLook);
  EXPECT_EQ(pairs.copied.to_device, 0u);
  const Moved whole = moved_in_a_step({"none", kNothingKept, 0, "none-simulated", ""}, kNumel);
  EXPECT_EQ(whole.direct_messages, 1u);
  EXPECT_EQ(whole.direct_bytes, kNumel * sizeof(float));
  EXPECT_EQ(whole.copied.to_host, kLook);
  EXPECT_EQ(whole.copied.to_device, 0u);
}

TEST(DirectMessages, CarryOnlyAsMuchAsAThresholdLetsThrough) {
  const Moved moved = moved_in_a_step(
      {"threshold", kWithResidual, 0, "threshold-simulated", "threshold = 2.0\n"}, 1000);
  EXPECT_EQ(moved.direct_messages, 1u);
  EXPECT_EQ(moved.direct_bytes, 0u);
}

TEST(DirectMessages, OfAVoidBucketAreNotSent) {
  const Moved moved = moved_in_a_step({"topk", kWithResidual}, 1000, 1);
  EXPECT_EQ(moved.direct_messages, 0u);
}

TEST(DirectMessages, OfCodesThatAHostLooksAtGoThroughHostMemory) {
  const Moved moved = moved_in_a_step({"signs", kWithResidual, 0, "signsgd-simulated", ""}, 1000);
  EXPECT_EQ(moved.direct_messages, 0u);
  EXPECT_GT(moved.copied.to_device, 0u);
}

// ---- several sets ----

TEST(DirectMessages, OfSeveralSetsHaveOneOrderOnEveryRank) {
  constexpr uint32_t kSize = 3;
  const auto results_of_two = [](const std::string& tables, const Places& places) {
    std::vector<std::vector<Bytes>> results(kSize);
    with_device_ranks(kSize, resident_scheme(kOneByOne, tables),
                      [&](Runtime& runtime, uint32_t rank) {
                        step_two_sets(runtime, places(rank, 0), rank, results[rank]);
                      });
    return results;
  };
  const auto expected = results_of_two("", on_the_cpu);
  for (uint64_t seed = 1; seed <= (test::is_long() ? 10 : 5); ++seed) {
    const DevicesForAll devices(seed);
    EXPECT_EQ(difference(results_of_two(kOverNccl, one_each), expected), "") << "seed " << seed;
  }
}

// The run names the transport between devices, and the scheme of a set does not.
TEST(DirectMessages, OfASetWithASchemeOfItsOwnCarryFloat32UnlessAnotherTypeIsNamed) {
  const DevicesForAll devices;
  const std::string of_run =
      resident_scheme({"", kNothingKept, 0, "none-simulated", ""}, kOverNccl);
  for (const auto& [options, goes] :
       {std::pair("", true), std::pair("value_type = \"fp16\"", false)})
    with_device_ranks(2, of_run, [&](Runtime& runtime, uint32_t rank) {
      const std::string of_set = fmt::format(
          "[scheme]\ncompressor = \"topk-simulated\"\n{}\n[compressor.topk-simulated]\n{}\n",
          kWithResidual, options);
      auto set =
          make_set(runtime, lying_on({{"x", {3000}}}, on_cuda(int32_t(rank))), 0, "own", of_set);
      ASSERT_OK(set.status());
      each_item(report_of(**set), [&](const nlohmann::json& item) {
        EXPECT_EQ(item["why_staged"], "");
        EXPECT_EQ(item["from_device_to_device"], goes) << options;
      });
    });
}

// On an ordered collective the header, host messages and ticket of a bucket also have one order.
TEST(DirectMessages, MixWithStagingBuffersAndTheCpuInABucketOnAnOrderedCollective) {
  for (const bool ordered : {true, false})
    for (const ResidentMethod& method : {kMethods[0], kMethods[1]}) {
      Script script = resident_script(method, 3);
      script.shapes[2].dtype = PENSTOCK_FLOAT16;  // staged
      const Places mixed = [](uint32_t rank, size_t gradient) {
        return gradient == 1 ? Place() : on_cuda(int32_t(rank));
      };
      const auto expected = results_of(script, on_the_cpu);
      script.scheme = resident_scheme(
          method, fmt::format("{}[collective.loopback]\nordered = {}\n", kOverNccl, ordered));
      const DevicesForAll devices(7);
      ::testing::internal::CaptureStderr();
      const auto got = results_of(script, mixed);
      (void)::testing::internal::GetCapturedStderr();
      EXPECT_EQ(difference(got, expected), "") << method.name << (ordered ? ", ordered" : "");
    }
}

TEST(DirectMessages, OfASetOfSomeRanksGoThroughHostMemory) {
  const DevicesForAll devices;
  with_device_ranks(
      3, resident_scheme(kWithResidual, kOverNccl), [&](Runtime& runtime, uint32_t rank) {
        const auto shapes = lying_on({{"x", {300}}}, on_cuda(int32_t(rank)));
        if (rank == 2) return;
        std::vector<Storage> storage = storage_of(shapes);
        auto set = make_set(runtime, shapes, 0, "some", "", {0, 1});
        ASSERT_OK(set.status());
        each_item(report_of(**set),
                  [&](const nlohmann::json& item) { EXPECT_EQ(item["why_staged"], ""); });
        storage[0].write(std::vector<float>(300, 1));
        ASSERT_OK(set.value()->gradient_ready(0, storage[0].tensor(), storage[0].stream()));
        ASSERT_OK(set.value()->wait_all());
        ASSERT_OK(set.value()->step_end(true));
        storage[0].settle();
        EXPECT_EQ(runtime.between_devices().channel->messages_sent, 0u);
      });
}

// ---- failures ----

TEST(DirectMessages, IndicesOfAPeerThatDoNotAscendAreRefused) {
  const DevicesForAll devices;
  const ResidentMethod liar{"liar", kWithResidual, 0, "liar-simulated",
                            "density = 0.05\nlies_on_devices = true\n"};
  ::testing::internal::CaptureStderr();
  std::atomic<int> refusals = 0;
  with_device_ranks(2, resident_scheme(liar, kOverNccl), [&](Runtime& runtime, uint32_t rank) {
    const auto shapes = lying_on({{"x", {100}}}, on_cuda(int32_t(rank)));
    std::vector<Storage> storage = storage_of(shapes);
    auto set = make_set(runtime, shapes);
    ASSERT_OK(set.status());
    const Status status = exchange_ones(**set, storage[0]);
    EXPECT_FALSE(status.ok());
    if (status.code() == Code::invalid_payload) {
      ++refusals;
      EXPECT_TRUE(contains(status.message(),
                           fmt::format("the message of rank {} for gradient 'x' has indices that "
                                       "do not ascend or are not below 100",
                                       1 - rank)))
          << status.message();
    }
    storage[0].settle();
  });
  (void)::testing::internal::GetCapturedStderr();
  EXPECT_GT(refusals, 0);
}

TEST(DirectMessages, ARankWhoseGradientsLieOnTheCpuIsNamed) {
  const DevicesForAll devices;
  ::testing::internal::CaptureStderr();
  with_device_ranks(
      2, resident_scheme(kWithResidual, kOverNccl), [&](Runtime& runtime, uint32_t rank) {
        const auto set =
            make_set(runtime, lying_on({{"x", {100}}}, rank == 0 ? on_cuda(0) : Place()));
        ASSERT_FALSE(set.ok());
        EXPECT_TRUE(contains(set.status().message(), "float32 from device"))
            << set.status().message();
      });
  (void)::testing::internal::GetCapturedStderr();
}

TEST(DirectMessages, OfAnotherDeviceThanTheChannelsEndTheRunWithASentence) {
  const DevicesForAll devices;
  ::testing::internal::CaptureStderr();
  std::atomic<int> n_told = 0;
  with_device_ranks(
      2, resident_scheme(kWithResidual, kOverNccl), [&](Runtime& runtime, uint32_t rank) {
        const auto shapes = lying_on({{"x", {100}}}, on_cuda(int32_t(rank + 2)));
        std::vector<Storage> storage = storage_of(shapes);
        auto set = make_set(runtime, shapes);
        ASSERT_OK(set.status());
        const Status status = exchange_ones(**set, storage[0]);
        EXPECT_FALSE(status.ok());
        storage[0].settle();
        n_told += contains(status.message(), fmt::format("it lies on cuda:{}, this rank's channel "
                                                         "is on cuda:{}",
                                                         rank + 2, rank));
      });
  (void)::testing::internal::GetCapturedStderr();
  EXPECT_GT(n_told, 0);
}

TEST(DirectMessages, ADeviceThatIsLostEndsTheRunOnEveryRank) {
  for (const uint64_t nth : {20, 90}) {
    simulated::Settings settings;
    settings.devices = kDevices;
    simulated::reset(settings);
    simulated::fail_work(simulated::Call::kLaunch, nth, 719);
    ::testing::internal::CaptureStderr();
    const Script script = direct_script(kMethods[0], 3);
    with_device_ranks(script.size, script.scheme, [&](Runtime& runtime, uint32_t rank) {
      const auto shapes = placed(script, one_each, rank);
      std::vector<Storage> storage = storage_of(shapes);
      auto set = make_set(runtime, shapes);
      ASSERT_OK(set.status());
      Status status;
      for (uint64_t step = 0; step < 30 && status.ok(); ++step)
        status = take_step(script, **set, storage, rank, step);
      EXPECT_FALSE(status.ok());
      for (const Storage& one : storage) one.settle();
    });
    (void)::testing::internal::GetCapturedStderr();
  }
  simulated::reset();
}

}  // namespace
}  // namespace penstock::resident_direct_test
