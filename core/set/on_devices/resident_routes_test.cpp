// Gradients on devices, on routes of several legs. On `hierarchical` the ranks of a host add their
// gradients from device to device, and the owners compress the sums on their devices. Only payloads
// travel between hosts. On `shard` owners receive payloads through host memory, add them on their
// devices and compress the sums. Results and kept values must equal those on the CPU.

#include "core/set/on_devices/resident_testing.hpp"

#include <support/long.hpp>

namespace penstock::resident_routes_test {
namespace {

using namespace testing;  // every name in resident_testing.hpp

// The hosts of the ranks. Each rank has its own device, so hosts share no device.
struct Layout {
  const char* name;
  uint32_t size;
  const char* hosts;  // option of loopback
};
void PrintTo(const Layout& layout, std::ostream* out) {
  *out << layout.name;
}
const Layout kTwoByTwo{"two_hosts_of_two", 4, "0,0,1,1"};
const Layout kUnequal{"three_and_one", 4, "0,0,0,1"};
const Layout kOneHost{"one_host", 2, "0,0"};
const Layout kNoneShares{"hosts_of_one", 3, "0,1,2"};

const char* const kOverNcclInHosts =
    "[transport]\ndevice = \"nccl-simulated\"\n"
    "[collective.nccl-simulated]\nlibrary = \"libpenstock_device_simulated.so\"\ndevice = RANK\n";

std::string hosts_of(const Layout& layout) {
  return fmt::format("[collective.loopback]\nhosts = \"{}\"\n", layout.hosts);
}

Script script_of(const ResidentMethod& method, const Layout& layout, const char* tables = "",
                 const char* route = "hierarchical") {
  const std::string keys = fmt::format("{}\nroute = \"{}\"\n", method.keys, route);
  ResidentMethod on_route = method;
  on_route.keys = keys.c_str();
  return resident_script(on_route, layout.size, tables + hosts_of(layout));
}

const ResidentMethod kMethods[] = {
    {"topk", kWithResidual},
    {"topk_one_by_one", kOneByOne},
    {"topk_for_sums", kWithResidual, PENSTOCK_SET_SUM},
    {"topk_in_pieces", "memory = \"residual-simulated\"\nscheduler = \"hipress\""},
    {"topk_told_of_void_buckets_first", kWithResidual, 0, "topk-simulated", "density = 0.05\n",
     "nonfinite = \"strict\"\n"},
    {"topk_with_dgc_that_warms_up", kWithDgc, 0, "topk-simulated",
     "density = 0.3\n[[switch]]\nat_step = 3\nset = { compressor.topk-simulated.density = 0.1 }\n"},
    {"topk_in_halves", kWithResidual, 0, "topk-simulated",
     "density = 0.1\nvalue_type = \"fp16\"\n"},
    {"threshold", kWithResidual, 0, "threshold-simulated", "threshold = 1.5\n"},
    {"fp16", kWithResidual, 0, "fp16-simulated", ""},
    {"signs", kWithResidual, 0, "signsgd-simulated", ""},
    {"none", kNothingKept, 0, "none-simulated", ""},
    {"none_with_momentum", "memory = \"momentum-simulated\"\nscheduler = \"wfbp\"", 0,
     "none-simulated", ""},
};

class InHosts : public ::testing::TestWithParam<std::tuple<ResidentMethod, Layout>> {};
INSTANTIATE_TEST_SUITE_P(Methods, InHosts,
                         ::testing::Combine(test::every_twelfth(kMethods),
                                            ::testing::Values(kTwoByTwo, kUnequal)),
                         [](const auto& info) {
                           return std::string(std::get<0>(info.param).name) + "_on_" +
                                  std::get<1>(info.param).name;
                         });
INSTANTIATE_TEST_SUITE_P(Layouts, InHosts,
                         ::testing::Combine(::testing::Values(kMethods[0]),
                                            ::testing::Values(kOneHost, kNoneShares)),
                         [](const auto& info) {
                           return std::string(std::get<0>(info.param).name) + "_on_" +
                                  std::get<1>(info.param).name;
                         });

void expect_bits_of_the_cpu(const Script& script, const Script& of_the_cpu) {
  testing::expect_bits_of_the_cpu(script, one_each, of_the_cpu, {1, test::is_long() ? 10u : 1u});
}

TEST_P(InHosts, GiveTheBitsOfTheCpu) {
  const auto& [method, layout] = GetParam();
  expect_bits_of_the_cpu(script_of(method, layout, kOverNcclInHosts), script_of(method, layout));
}

// Factors are sums in floating point, and a matrix is left out of every second step.
TEST(InHostsOnly, AlternatingFactorsStayNearTheCpu) {
  const ResidentMethod method{"alternating", kWithResidual, 0, "powersgd-alternating-simulated",
                              "rank = 2\n"};
  const ResidentOutcome expected = outcome_of(script_of(method, kTwoByTwo), on_the_cpu);
  const DevicesForAll devices(3);
  const ResidentOutcome got = outcome_of(script_of(method, kTwoByTwo, kOverNcclInHosts), one_each);
  expect_near(got, expected, {1e-5, 1e-3});
  expect_alike(got, expected);
}

// On an ordered collective the header, host messages and ticket of each leg also have one order.
TEST(InHostsOnly, StagingBuffersAndTheCpuShareBuckets) {
  for (const bool ordered : {true, false}) {
    Script script = script_of(kMethods[0], kTwoByTwo);
    script.shapes[2].dtype = PENSTOCK_FLOAT16;  // staged
    const Places mixed = [](uint32_t rank, size_t gradient) {
      return gradient == 1 ? Place() : on_cuda(int32_t(rank));
    };
    const auto expected = results_of(script, on_the_cpu);
    script.scheme = script_of(kMethods[0], kTwoByTwo, kOverNcclInHosts).scheme +
                    fmt::format("ordered = {}\n", ordered);
    const DevicesForAll devices(7);
    ::testing::internal::CaptureStderr();
    const auto got = results_of(script, mixed);
    (void)::testing::internal::GetCapturedStderr();
    EXPECT_EQ(difference(got, expected), "") << (ordered ? "ordered" : "");
  }
}

// ---- paths of the data ----

constexpr uint64_t kNumel = 8000, kFlag = sizeof(uint32_t);

Moved moved(const ResidentMethod& method, std::optional<uint32_t> not_finite = {}) {
  return moved_in_a_step(script_of(method, kTwoByTwo, kOverNcclInHosts).scheme, kTwoByTwo.size,
                         kNumel, not_finite);
}

TEST(InHostsOnly, PayloadsOfSharesAloneCrossTheBus) {
  const Moved moved_by_topk = moved(kMethods[0]);
  // The gradient travels to its owners, and an owner's share of the result travels back.
  EXPECT_EQ(moved_by_topk.direct_messages, 2u);
  EXPECT_EQ(moved_by_topk.direct_bytes, (kNumel + kNumel / 2) * sizeof(float));
  // Each rank copies two things to its host: the flag from the inspection and the payload of its
  // share. The host also receives the payload of the owner on the other host.
  const uint64_t payload = uint64_t(kDensity * kNumel / 2) * 8;
  // The flags: of the gradient, and of both owners' sums.
  EXPECT_EQ(moved_by_topk.copied.to_host, kTwoByTwo.size * (3 * kFlag + payload));
  EXPECT_EQ(moved_by_topk.copied.to_device, kTwoByTwo.size * payload);
}

TEST(InHostsOnly, AHostWhoseSumIsNotFiniteSendsNothing) {
  EXPECT_EQ(moved(kMethods[0], 1).direct_messages, 0u);
  // The other rank learns this after the owner has added its gradients.
  EXPECT_EQ(moved(kMethods[0], 2).direct_messages, 1u);
}

TEST(InHostsOnly, TheReportTellsWhatGoesFromDeviceToDevice) {
  const DevicesForAll devices;
  const Script script = script_of(kMethods[8], kTwoByTwo, kOverNcclInHosts);
  with_device_ranks(script.size, script.scheme, [&](Runtime& runtime, uint32_t rank) {
    auto set = make_set(runtime, placed(script, one_each, rank));
    ASSERT_OK(set.status());
    each_item(report_of(**set), [&](const nlohmann::json& item) {
      EXPECT_EQ(item["why_staged"], "");
      EXPECT_EQ(item["from_device_to_device"], true);
    });
  });
}

// The reason that the report gives for a set with its own scheme, among these ranks.
std::string reason_in(const std::string& run, const std::string& scheme,
                      const std::vector<uint32_t>& ranks = {}) {
  const DevicesForAll devices;
  std::string why;
  ::testing::internal::CaptureStderr();
  with_device_ranks(kTwoByTwo.size, run, [&](Runtime& runtime, uint32_t rank) {
    if (!ranks.empty() && std::find(ranks.begin(), ranks.end(), rank) == ranks.end()) return;
    auto set =
        make_set(runtime, lying_on({{"x", {40}}}, one_each(rank, 0)), 0, "own", scheme, ranks);
    ASSERT_OK(set.status());
    if (rank == 0)
      each_item(report_of(**set),
                [&](const nlohmann::json& item) { why = item["why_staged"].get<std::string>(); });
  });
  (void)::testing::internal::GetCapturedStderr();
  return why;
}

// Kept values lie on the device, so a later plan with another route could not move them.
TEST(InHostsOnly, ASchedulerToWhomTheRouteIsLeftHasNoChoiceForGradientsOnDevices) {
  const ResidentMethod method{"random",
                              "memory = \"residual-simulated\"\nscheduler = \"random-plan-c\""};
  const std::string scheme =
      resident_scheme(method, fmt::format("[scheduler.random-plan-c]\nroutes = {}\n",
                                          1 << PENSTOCK_ROUTE_FLAT | 1 << PENSTOCK_ROUTE_SHARD));
  for (const bool on_device : {true, false}) {
    const DevicesForAll devices;
    ::testing::internal::CaptureStderr();
    with_device_ranks(1, scheme, [&](Runtime& runtime, uint32_t) {
      std::vector<GradientShape> shapes;  // so many that the scheduler draws another route for some
                                          // gradient
      for (int i = 0; i < 12; ++i) shapes.push_back({fmt::format("x{}", i), {40}});
      const auto set = make_set(runtime, lying_on(shapes, on_device ? on_cuda(0) : Place()));
      EXPECT_EQ(set.ok(), !on_device) << set.status().message();
      if (on_device) {
        EXPECT_TRUE(contains(set.status().message(), "planned route 4 for gradient 'x"));
      }
    });
    (void)::testing::internal::GetCapturedStderr();
  }
}

TEST(InHostsOnly, WhereNothingIsAddedOnDevicesTheReportSaysWhy) {
  const auto scheme = [](const char* route, const char* tables = "") {
    return script_of(kMethods[0], kTwoByTwo, tables, route).scheme;
  };
  const std::string own =
      "[scheme]\ncompressor = \"topk-simulated\"\nmemory = "
      "\"residual-simulated\"\nscheduler = \"fusion\"\n";
  const std::string plain =
      "[scheme]\ncompressor = \"none-simulated\"\nmemory = \"none\"\n"
      "scheduler = \"fusion\"\n";
  const std::string in_hosts = own + "route = \"hierarchical\"\n";
  constexpr const char* kOnHost = "the ranks of a host add it in host memory, because ";
  EXPECT_EQ(reason_in(scheme("hierarchical"), ""),
            std::string(kOnHost) + "no transport.device is named");
  EXPECT_EQ(reason_in(scheme("flat", kOverNcclInHosts), in_hosts),
            std::string(kOnHost) +
                "transport.device = \"nccl-simulated\" connects all ranks, because the run's own "
                "scheme.route is not \"hierarchical\"");
  EXPECT_EQ(reason_in(scheme("hierarchical", kOverNcclInHosts), "", {0, 1, 2}),
            std::string(kOnHost) + "sets of some ranks have no transport.device");
  EXPECT_EQ(reason_in(scheme("hierarchical", kOverNcclInHosts), own), "");
  EXPECT_EQ(reason_in(scheme("hierarchical", kOverNcclInHosts), plain),
            "it is sent uncompressed and whole, and transport.device = \"nccl-simulated\" connects "
            "only the ranks of each host, because the run's own scheme.route is \"hierarchical\"");
}

// At creation the scheduler measures messages, also between the devices of the first host, and then
// plans again. The other host takes no part in the measurement between devices.
TEST(InHostsOnly, ASchedulerThatMeasuresGivesTheBitsOfTheCpu) {
  const ResidentMethod method{"measured", "memory = \"residual-simulated\"\nscheduler = \"mgwfbp\"",
                              0, "topk-simulated",
                              "density = 0.05\n[scheduler.mgwfbp]\nprofile_steps = 2\n"};
  Script script = script_of(method, kTwoByTwo);
  script.steps = 4;  // then the buckets decide which gradients are void
  const auto expected = results_of(script, on_the_cpu);
  script.scheme = script_of(method, kTwoByTwo, kOverNcclInHosts).scheme;
  const DevicesForAll devices(2);
  EXPECT_EQ(difference(results_of(script, one_each), expected), "");
}

// Some compressors receive the gradients widened to float32, others receive 16 bits and the sum is
// in 16 bits. Each host has two ranks, so a sum of 16 bits has only one order.
TEST(InHostsOnly, GradientsOf16BitsGiveTheBitsOfTheCpu) {
  for (const ResidentMethod& method : {kMethods[0], kMethods[7], kMethods[10]}) {
    const Script script = of_three_types(script_of(method, kTwoByTwo, kOverNcclInHosts));
    expect_bits_of_the_cpu(script, of_three_types(script_of(method, kTwoByTwo)));
  }
}

// ---- sums at their owners ----

const ResidentMethod kToOwners[] = {
    {"topk", kWithResidual},
    {"topk_one_by_one_for_sums", kOneByOne, PENSTOCK_SET_SUM},
    {"topk_nothing_kept", kNothingKept},
    {"topk_with_dgc",
     "memory = \"dgc-simulated\"\nowner_memory = \"residual-simulated\"\n"
     "scheduler = \"fusion\""},
    {"threshold", kWithResidual, 0, "threshold-simulated", "threshold = 1.5\n"},
    {"qsgd", kNothingKept, 0, "qsgd-simulated", "norm = \"max\"\nbucket = 64\n"},
    {"natural", kWithResidual, 0, "natural-simulated", ""},
    {"topk_and_vectors_as_they_are", kWithResidual, 0, "topk-simulated",
     "density = 0.1\n[[rule]]\nmatch = { dims = { max = 1 } }\ncompressor = \"fp16-simulated\"\n"
     "memory = \"none\"\n"},
};

class ToOwners : public ::testing::TestWithParam<ResidentMethod> {};
INSTANTIATE_TEST_SUITE_P(Methods, ToOwners, ::testing::ValuesIn(kToOwners),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_P(ToOwners, GiveTheBitsOfTheCpu) {
  for (const Layout& layout : {kNoneShares, kOneHost}) {
    const Script script = script_of(GetParam(), layout, "", "shard");
    expect_bits_of_the_cpu(script, script);
    if (!test::is_long()) break;
  }
}

TEST(ToOwnersOnly, GradientsOf16BitsGiveTheBitsOfTheCpu) {
  const Script script = of_three_types(script_of(kToOwners[0], kNoneShares, "", "shard"));
  expect_bits_of_the_cpu(script, script);
}

// Each result goes to one rank alone, as FSDP2 wants it: from gathered payloads, and from sums.
class ToOwnersOnlyBy : public ::testing::TestWithParam<ResidentMethod> {};
INSTANTIATE_TEST_SUITE_P(
    Methods, ToOwnersOnlyBy,
    ::testing::Values(kToOwners[0], ResidentMethod{"fp16", kWithResidual, 0, "fp16-simulated", ""},
                      ResidentMethod{"fp16_nothing_kept", kNothingKept, 0, "fp16-simulated", ""}),
    [](const auto& info) { return std::string(info.param.name); });

TEST_P(ToOwnersOnlyBy, ResultsHaveTheBitsOfTheCpu) {
  Script script = script_of(GetParam(), kNoneShares, "", "shard");
  script.flags = PENSTOCK_SET_RESULT_AT_OWNER;
  for (size_t i = 0; i < script.shapes.size(); ++i)
    script.shapes[i].owner = uint32_t(i % script.size);
  const auto owned = [&](const ResidentOutcome& outcome) {
    std::vector<Bytes> results;
    for (size_t step = 0; step < script.steps; ++step)
      for (size_t i = 0; i < script.shapes.size(); ++i)
        results.push_back({outcome.results[i % script.size][step][i]});
    return results;
  };
  const ResidentOutcome expected = outcome_of(script, on_the_cpu);
  const DevicesForAll devices(5);
  const ResidentOutcome got = outcome_of(script, one_each);
  EXPECT_EQ(difference({owned(got)}, {owned(expected)}), "");
  EXPECT_TRUE(got.saved == expected.saved);
}

// The sum overflows at its owner, though every gradient is finite.
void expect_an_overflow_to_make_the_bucket_void(const char* route, const char* tables) {
  const DevicesForAll devices;
  const Script script =
      script_of({"topk_nothing_kept", kNothingKept, 0, "topk-simulated", "density = 1.0\n"},
                kOneHost, tables, route);
  with_device_ranks(script.size, script.scheme, [&](Runtime& runtime, uint32_t rank) {
    const auto shapes = lying_on({{"x", {64}}}, one_each(rank, 0));
    std::vector<Storage> storage = storage_of(shapes);
    auto set = make_set(runtime, shapes);
    ASSERT_OK(set.status());
    storage[0].write(std::vector<float>(64, std::numeric_limits<float>::max()));
    ASSERT_OK(set.value()->gradient_ready(0, storage[0].tensor(), storage[0].stream()));
    ASSERT_OK(set.value()->wait_all());
    const std::string result = storage[0].read();
    float first = 0;
    std::memcpy(&first, result.data(), sizeof first);
    EXPECT_TRUE(std::isnan(first)) << route;
    ASSERT_OK(set.value()->step_end(PENSTOCK_STEP_FORGOTTEN));
  });
}

TEST(ToOwnersOnly, ASumThatIsNotFiniteMakesTheBucketVoid) {
  expect_an_overflow_to_make_the_bucket_void("shard", "");
}

TEST(InHostsOnly, ASumThatIsNotFiniteMakesTheBucketVoid) {
  expect_an_overflow_to_make_the_bucket_void("hierarchical", "");
  expect_an_overflow_to_make_the_bucket_void("hierarchical", kOverNcclInHosts);
}

// ---- several sets ----

// Each host has its own order, independent of the order on the other host.
TEST(InHostsOnly, SeveralSetsHaveOneOrderOnEveryRankOfAHost) {
  const auto results_of_two = [](const char* tables, const Places& places) {
    std::vector<std::vector<Bytes>> results(kTwoByTwo.size);
    with_device_ranks(kTwoByTwo.size, script_of(kMethods[1], kTwoByTwo, tables).scheme,
                      [&](Runtime& runtime, uint32_t rank) {
                        step_two_sets(runtime, places(rank, 0), rank, results[rank]);
                      });
    return results;
  };
  const auto expected = results_of_two("", on_the_cpu);
  for (uint64_t seed = 1; seed <= (test::is_long() ? 10 : 3); ++seed) {
    const DevicesForAll devices(seed);
    EXPECT_EQ(difference(results_of_two(kOverNcclInHosts, one_each), expected), "") << seed;
  }
}

}  // namespace
}  // namespace penstock::resident_routes_test
