// Schedulers that plan by measured costs, with device-resident gradients: the times of calls on the
// device, by the clock of the simulated device, and the times of exchanges from device to device.

#include "core/set/on_devices/resident_testing.hpp"
#include "core/set/witness_testing.hpp"

#include <fmt/format.h>
#include <support/long.hpp>

namespace penstock::resident_planned_test {
namespace {

using namespace testing;  // every name in resident_testing.hpp

using simulated::kCopyUs, simulated::kLaunchUs;

constexpr double kSelection = 8 * kLaunchUs;  // top-k of a bucket, including the residual

std::string text_of(const Figures& figures) {
  std::string text;
  for (const auto& [name, values] : figures)
    text += fmt::format("{} {}\n", name, fmt::join(values, " "));
  return text;
}

Status take_plain_step(Set& set, std::vector<Storage>& storage) {
  for (size_t i = storage.size(); i-- > 0;) {
    storage[i].write(std::vector<float>(storage[i].bytes() / sizeof(float), 1));
    PENSTOCK_TRY(set.gradient_ready(i, storage[i].tensor(), storage[i].stream()));
  }
  PENSTOCK_TRY(set.wait_all());
  return set.step_end(true);
}

// The figures that rank 0's scheduler sees before the first step and after some steps.
struct Shown {
  Figures before, after;
};
Shown shown_to_witness(const ResidentMethod& method, const std::vector<GradientShape>& shapes,
                       const std::string& tables = "", uint32_t size = 2) {
  simulated::Settings settings;
  settings.devices = kDevices;
  simulated::reset(settings);
  Shown shown;
  with_device_ranks(size, resident_scheme(method, tables), [&](Runtime& runtime, uint32_t rank) {
    const auto placed_here = lying_on(shapes, one_each(rank, 0));
    std::vector<Storage> storage = storage_of(placed_here);
    auto set = make_set(runtime, placed_here);
    ASSERT_OK(set.status());
    if (rank == 0) shown.before = figures_of(**set);
    for (int step = 0; step < 4; ++step) ASSERT_OK(take_plain_step(**set, storage));
    if (rank == 0) shown.after = figures_of(**set);
    for (const Storage& one : storage) one.settle();
  });
  for (const auto& report : simulated::reports()) ADD_FAILURE() << report.sentence;
  simulated::reset();
  return shown;
}

constexpr const char* kWithWitness = "memory = \"residual-simulated\"\nscheduler = \"witness\"";
constexpr const char* kWitnessAlone = "memory = \"none\"\nscheduler = \"witness\"";
const std::vector<GradientShape> kOne{{"x", {10000}}};

// ---- times of compressors ----

// Before the first step the times come from the probe, afterwards from the steps. Both make exactly
// these calls.
void expect_call(const Shown& shown, double encode_us, double decode_us) {
  for (const Figures* figures : {&shown.before, &shown.after}) {
    EXPECT_NEAR(figures->at("encode_fixed_us")[0], encode_us, 1) << text_of(*figures);
    EXPECT_NEAR(figures->at("decode_fixed_us")[0], decode_us, 1) << text_of(*figures);
  }
}

TEST(PlannedResidents, ACallTakesWhatTheDeviceTakesAndTheWayToPinnedMemoryAndBack) {
  // The host decodes the indices of the message, so they have a copy of their own.
  expect_call(shown_to_witness({"topk", kWithWitness}, kOne), kSelection + kCopyUs,
              2 * kCopyUs + kLaunchUs);
}

// The indices of the other rank are checked: the check's answer is cleared, computed and fetched.
TEST(PlannedResidents, ACallWhosePayloadsGoDirectlyTakesNoWayThroughPinnedMemory) {
  expect_call(shown_to_witness({"topk", kWithWitness}, kOne, kOverNccl), kSelection,
              kCopyUs + kLaunchUs + kCopyUs + kLaunchUs);
}

TEST(PlannedResidents, WhatIsSentAsItLiesIsNoWorkButForTheMean) {
  expect_call(shown_to_witness({"none", kWitnessAlone, 0, "none-simulated", ""}, kOne, kOverNccl),
              0, kLaunchUs);
}

// The cost around the calls of a bucket is divided by elements: the pairs of both gradients are in
// one message, their counts are fetched together, and the memory handles both.
TEST(PlannedResidents, EachCompressorOfABucketHasItsOwnTime) {
  const ResidentMethod method{
      "two", kWitnessAlone, 0, "topk-simulated",
      "density = 0.05\n[[rule]]\nmatch = { dims = { max = 1 } }\ncompressor = "
      "\"threshold-simulated\"\nmemory = \"none\"\n[compressor.threshold-simulated]\nthreshold = "
      "0.5\n"};
  const auto seen = [&](const std::vector<GradientShape>& shapes) {
    return shown_to_witness(method, shapes, kOverNccl).after.at("encode_fixed_us")[0];
  };
  const GradientShape matrix{"matrix", {100, 30}}, vector{"vector", {1000}};
  const double of_topk = seen({matrix, vector}), of_threshold = seen({vector, matrix});
  const double around = kLaunchUs + kCopyUs;
  EXPECT_NEAR(of_topk, kSelection + 0.75 * around, 1);
  EXPECT_NEAR(of_threshold, seen({vector}) - around + 0.25 * around, 1);
}

// ---- times of exchanges ----

double line_of(const Figures& figures, uint32_t pattern, uint64_t bytes_from, const char* what) {
  const auto found = figures.find(
      fmt::format("line.{}.{}.{}.{}", uint32_t{PENSTOCK_LEVEL_WORLD}, pattern, bytes_from, what));
  return found == figures.end() ? -1 : found->second[0];
}

// A simulated link between hosts, with 2 ms per message and 20 ns per byte. Only the header and the
// ticket travel over it, no payload. Other load on the machine can only make the times longer.
constexpr const char* kSlowHost = "[collective.loopback]\nlatency_us = 2000\nus_per_byte = 0.02\n";

bool is_direct_line(const Figures& figures, uint32_t pattern) {
  const double alpha = line_of(figures, pattern, 0, "alpha_us");
  const uint64_t large = pattern == PENSTOCK_ALL_GATHER ? 16384 : 32768;
  return alpha >= 3900 && alpha <= 5500 &&
         line_of(figures, pattern, large, "beta_us_per_byte") < 0.01;
}
bool is_host_line(const Figures& figures, uint32_t pattern) {
  const double alpha = line_of(figures, pattern, 0, "alpha_us");
  return alpha >= 1900 && alpha <= 2500;
}

bool some_try(const std::function<bool()>& is_right) {
  for (int tries = 0; tries < 8; ++tries)
    if (is_right()) return true;
  return false;
}

TEST(PlannedResidents, ALineFromDeviceToDeviceHasAHeaderAndATurnAndNotTheHostsBytes) {
  Figures seen;
  EXPECT_TRUE(some_try([&] {
    seen = shown_to_witness({"topk", kWithWitness}, kOne, std::string(kOverNccl) + kSlowHost).after;
    return is_direct_line(seen, PENSTOCK_ALL_REDUCE) &&
           is_direct_line(seen, PENSTOCK_REDUCE_SCATTER) &&
           is_direct_line(seen, PENSTOCK_ALL_GATHER);
  })) << text_of(seen);
}

TEST(PlannedResidents, WhatGoesThroughPinnedMemoryIsPlannedByTheHostsLines) {
  const ResidentMethod signs{"signs", kWitnessAlone, 0, "signsgd-simulated", ""};
  Figures seen;
  EXPECT_TRUE(some_try([&] {
    seen = shown_to_witness(signs, kOne, std::string(kOverNccl) + kSlowHost).after;
    return is_host_line(seen, PENSTOCK_ALL_REDUCE) && is_host_line(seen, PENSTOCK_ALL_GATHER);
  })) << text_of(seen);
}

TEST(PlannedResidents, SumsThatGoDirectlyBesideCodesThatDoNotHaveEachTheirOwnLines) {
  const ResidentMethod both{
      "both", kWitnessAlone, 0, "none-simulated",
      "[[rule]]\nmatch = { dims = { max = 1 } }\ncompressor = \"signsgd-simulated\"\n"
      "[compressor.signsgd-simulated]\n"};
  Figures seen;
  EXPECT_TRUE(some_try([&] {
    seen = shown_to_witness(both, {{"matrix", {30, 20}}, {"vector", {100}}},
                            std::string(kOverNccl) + kSlowHost)
               .after;
    return is_direct_line(seen, PENSTOCK_ALL_REDUCE) && is_host_line(seen, PENSTOCK_ALL_GATHER);
  })) << text_of(seen);
}

// ---- measuring while another set runs ----

class DevicesForAll : public SimulatedDevices {
 public:
  explicit DevicesForAll(uint64_t seed) : SimulatedDevices(seed, 0, kDevices) {}
};

constexpr const char* kOneByOneDirectly =
    "[scheme]\ncollective = \"loopback\"\ncompressor = \"topk-simulated\"\nmemory = "
    "\"residual-simulated\"\nscheduler = \"wfbp\"\n[compressor.topk-simulated]\ndensity = 0.05\n";

// One set measures at the end of a step while another set is in the middle of a step. The other set
// has many exchanges under way, and each rank begins them in a different order. They begin before
// the measurement on all ranks, or on some ranks only after it.
void measure_beside_another(Runtime& runtime, uint32_t rank) {
  constexpr size_t kMany = 20;
  const Place here = on_cuda(int32_t(rank));
  std::vector<GradientShape> many;
  for (size_t i = 0; i < kMany; ++i) many.push_back({fmt::format("x{}", i), {int64_t(100 + i)}});
  const auto few = lying_on({{"x", {300}}, {"y", {200}}}, here);
  many = lying_on(many, here);
  std::vector<Storage> of_few = storage_of(few), of_many = storage_of(many);
  auto measuring = make_set(runtime, few, 0, "measuring");
  auto other = make_set(runtime, many, 0, "other", kOneByOneDirectly);
  ASSERT_OK(measuring.status());
  ASSERT_OK(other.status());
  const auto begin_other = [&] {
    for (size_t n = 0; n < kMany; ++n) {
      const size_t index = (n + 7 * rank) % kMany;
      Storage& one = of_many[index];
      one.write(std::vector<float>(one.bytes() / sizeof(float), float(rank + 1)));
      ASSERT_OK(other.value()->gradient_ready(index, one.tensor(), one.stream()));
    }
  };
  for (uint64_t step = 0; step < 4; ++step) {
    for (const size_t i : {1, 0}) {
      of_few[i].write(std::vector<float>(of_few[i].bytes() / sizeof(float), 1));
      ASSERT_OK(measuring.value()->gradient_ready(i, of_few[i].tensor(), of_few[i].stream()));
    }
    ASSERT_OK(measuring.value()->wait_all());
    const bool is_late = rank != 0 && step % 4 == 3;
    if (!is_late) begin_other();
    ASSERT_OK(measuring.value()->step_end(true));
    if (is_late) begin_other();
    ASSERT_OK(other.value()->wait_all());
    ASSERT_OK(other.value()->step_end(true));
    for (auto* storages : {&of_few, &of_many})
      for (Storage& one : *storages) one.settle();
  }
  EXPECT_GT(line_of(figures_of(**measuring), PENSTOCK_ALL_REDUCE, 0, "alpha_us"), -1);
}

TEST(PlannedResidents, MeasuringTakesTurnsWithTheStepsOfAnotherSet) {
  for (uint64_t seed = 1; seed <= (test::is_long() ? 10 : 2); ++seed) {
    const std::string scheme = resident_scheme(
        std::string(kWithWitness),
        fmt::format("{}[collective.loopback]\nordered = {}\n", kOverNccl, seed % 2 == 0));
    const DevicesForAll devices(seed);
    with_device_ranks(
        3, scheme, [&](Runtime& runtime, uint32_t rank) { measure_beside_another(runtime, rank); });
  }
}

// The gradients of one bucket are void together, and the runs here have different buckets.
std::vector<std::vector<Bytes>> finite_results(const Script& script, const Places& places) {
  auto results = outcome_of(script, places).results;
  for (auto& of_rank : results)
    for (uint64_t step = 0; step < of_rank.size(); ++step)
      if (step % 6 == 4) of_rank[step].clear();
  return results;
}

// Which payloads go directly is equal on all ranks, but the places of the gradients are not. If one
// rank alone measured direct exchanges, it would wait for the other forever.
TEST(PlannedResidents, RanksOnDevicesAndOnTheCpuMeasureTheSame) {
  const ResidentMethod signs{"signs", kWitnessAlone, 0, "signsgd-simulated", ""};
  const DevicesForAll devices(1);
  ::testing::internal::CaptureStderr();
  with_device_ranks(2, resident_scheme(signs, kOverNccl), [&](Runtime& runtime, uint32_t rank) {
    const auto shapes = lying_on({{"x", {300}}}, rank == 0 ? on_cuda(0) : Place());
    std::vector<Storage> storage = storage_of(shapes);
    auto set = make_set(runtime, shapes);
    ASSERT_OK(set.status());
    if (rank == 0)
      each_item(report_of(**set),
                [&](const nlohmann::json& item) { EXPECT_EQ(item["worked_on"], "cuda:0"); });
    for (int step = 0; step < 3; ++step) ASSERT_OK(take_plain_step(**set, storage));
    for (const Storage& one : storage) one.settle();
  });
  (void)::testing::internal::GetCapturedStderr();
}

// The sums have the bits of the CPU for every plan, because the simulated NCCL adds in the order of
// ranks.
TEST(PlannedResidents, OfEverySchedulerThatMeasuresHaveTheBitsOfTheCpu) {
  const auto script_of = [](const std::string& scheduler, const std::string& tables) {
    const std::string keys = "memory = \"none\"\nscheduler = \"" + scheduler + "\"";
    return resident_script({"none", keys.c_str(), 0, "none-simulated", ""}, 3, tables);
  };
  const auto expected = finite_results(script_of("wfbp", ""), on_the_cpu);
  for (const char* scheduler : {"mgwfbp", "optimal", "rgmerge", "omgs", "fgbuff", "horovod"}) {
    const DevicesForAll devices(5);
    const std::string options = fmt::format("[scheduler.{}]\nprofile_steps = 2\n", scheduler);
    const auto got = finite_results(script_of(scheduler, kOverNccl + options), one_each);
    EXPECT_EQ(difference(got, expected), "") << scheduler;
  }
}

}  // namespace
}  // namespace penstock::resident_planned_test
