// Device-resident gradients of 16 bits: widened on the device if a plugin wants float32, and
// unchanged if they are sent uncompressed. Results and memories' states equal the CPU's.

#include "core/set/on_devices/resident_testing.hpp"

#include <support/worlds.hpp>

namespace penstock::resident_halves_test {
namespace {

using namespace testing;  // every name in resident_testing.hpp

Script script_of(const ResidentMethod& method, uint32_t size, const std::string& tables = "") {
  return of_three_types(resident_script(method, size, tables));
}

constexpr Seeds kTwo{1, 2};

const ResidentMethod kWidened[] = {
    {"topk_with_residual", kWithResidual},
    {"topk_with_dgc_one_by_one", "memory = \"dgc-simulated\"\nscheduler = \"wfbp\""},
    {"topk_in_pieces", "memory = \"residual-simulated\"\nscheduler = \"hipress\""},
    {"topk_for_sums", kWithResidual, PENSTOCK_SET_SUM},
    {"bf16_nothing_kept", kNothingKept, 0, "bf16-simulated", ""},
    {"signum", "memory = \"momentum-simulated\"\nscheduler = \"fusion\"", 0, "signum-simulated",
     ""},
    {"adtopk_in_turn", kWithResidual, 0, "adtopk-simulated", "density = 0.1\n"},
};

class WidenedHalves : public ::testing::TestWithParam<std::tuple<ResidentMethod, uint32_t>> {};
INSTANTIATE_TEST_SUITE_P(Methods, WidenedHalves,
                         ::testing::Combine(::testing::ValuesIn(kWidened),
                                            test::worlds({1, 3}, {3})),
                         testing::name_and_size);

TEST_P(WidenedHalves, GiveTheBitsOfTheCpu) {
  const auto& [method, size] = GetParam();
  const Script script = script_of(method, size);
  expect_bits_of_the_cpu(script, by_rank, script, kTwo);
}

// A sum of 16 bits has only one order with two ranks.
TEST(WidenedHalvesOverNccl, GiveTheBitsOfTheCpu) {
  for (const auto& [method, size] : {std::pair(kWidened[0], 3u), std::pair(kWidened[4], 2u)})
    expect_bits_of_the_cpu(script_of(method, size, kOverNccl), one_each, script_of(method, size),
                           kTwo);
}

// A sum of two addends has only one order.
TEST(PlainHalves, TravelAsTheyAreFromDeviceToDevice) {
  for (const char* keys : {kNothingKept, "memory = \"none\"\nscheduler = \"wfbp\""}) {
    const ResidentMethod method{"plain", keys, 0, "none-simulated", ""};
    expect_bits_of_the_cpu(script_of(method, 2, kOverNccl), one_each, script_of(method, 2), kTwo);
  }
}

TEST(PlainHalves, StandBesideWidenedOnesInAScheme) {
  const std::string rule =
      "[[rule]]\nmatch = { dims = { max = 1 } }\ncompressor = \"none-simulated\"\n";
  const ResidentMethod method{"small_ones_as_they_are", kWithResidual};
  expect_bits_of_the_cpu(script_of(method, 2, rule + kOverNccl), one_each,
                         script_of(method, 2, rule), kTwo);
}

// Probes and trials of links also use 16 bits.
TEST(PlainHalves, ArePlannedFromMeasuredTimes) {
  const std::string rule =
      "[scheduler.mgwfbp]\nprofile_steps = 2\n"
      "[[rule]]\nmatch = { dims = { max = 1 } }\ncompressor = \"none-simulated\"\n";
  const ResidentMethod method{"planned", "memory = \"residual-simulated\"\nscheduler = \"mgwfbp\""};
  Script script = script_of(method, 2, rule);
  script.steps = 4;  // then the buckets decide which gradients are void
  const auto expected = results_of(script, on_the_cpu);
  script.scheme = script_of(method, 2, rule + kOverNccl).scheme;
  const DevicesForAll devices(3);
  EXPECT_EQ(difference(results_of(script, one_each), expected), "");
}

// Two bytes per element. float32 would take four.
TEST(PlainHalves, MoveTwoBytesAnElement) {
  const ResidentMethod method{"plain", kNothingKept, 0, "none-simulated", ""};
  const DevicesForAll devices;
  const std::string scheme = resident_scheme(method, kOverNccl);
  uint64_t bytes[2] = {};
  const uint32_t types[] = {PENSTOCK_BFLOAT16, PENSTOCK_FLOAT32};
  for (const size_t which : {0u, 1u})
    with_device_ranks(2, scheme, [&](Runtime& runtime, uint32_t rank) {
      auto shapes = lying_on({{"x", {1000}}}, one_each(rank, 0));
      shapes[0].dtype = types[which];
      std::vector<Storage> storage = storage_of(shapes);
      auto set = make_set(runtime, shapes);
      ASSERT_OK(set.status());
      storage[0].write(std::vector<float>(1000, 1));
      ASSERT_OK(set.value()->gradient_ready(0, storage[0].tensor(), storage[0].stream()));
      ASSERT_OK(set.value()->wait_all());
      ASSERT_OK(set.value()->step_end(true));
      storage[0].settle();
      if (rank == 0) bytes[which] = runtime.between_devices().channel->bytes_sent;
    });
  EXPECT_GT(bytes[0], 0u);
  EXPECT_EQ(2 * bytes[0], bytes[1]);
}

// The reason in the report for the only gradient, which lies on a device.
std::string reason_of(const std::string& scheme, uint32_t dtype) {
  const DevicesForAll devices;
  std::string reason;
  with_device_ranks(2, scheme, [&](Runtime& runtime, uint32_t rank) {
    auto shapes = lying_on({{"x", {1000}}}, one_each(rank, 0));
    shapes[0].dtype = dtype;
    auto set = make_set(runtime, shapes);
    ASSERT_OK(set.status());
    if (rank == 0)
      each_item(report_of(**set), [&](const nlohmann::json& item) {
        reason = item["why_staged"].get<std::string>();
      });
  });
  return reason;
}

TEST(PlainHalves, AreStagedWhereNothingAddsThemUpOnDevices) {
  const ResidentMethod method{"plain", kNothingKept, 0, "none-simulated", ""};
  EXPECT_EQ(reason_of(resident_scheme(method), PENSTOCK_FLOAT16),
            "it is sent uncompressed and whole, and no transport.device is named");
  EXPECT_EQ(reason_of(resident_scheme(method, kOverNccl), PENSTOCK_FLOAT16), "");
}

TEST(Doubles, AreStaged) {
  EXPECT_EQ(reason_of(resident_scheme(kWithResidual, kDoublesAsTheyAre), PENSTOCK_FLOAT64),
            "it is float64, expected float32, float16 or bfloat16");
}

}  // namespace
}  // namespace penstock::resident_halves_test
