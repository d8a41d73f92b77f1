// Methods that send signs and means, uncompressed otherwise, on devices. A mean is a quotient of a
// sum, and a device adds in another order. So results are near the CPU's results, but not equal: in
// the first step by a rounding or two, later by the effects of these roundings. On devices the bits
// are equal on every rank and for every order of the work.

#include "core/set/on_devices/resident_testing.hpp"

#include <support/long.hpp>
#include <support/worlds.hpp>

#include <cstring>

namespace penstock::resident_signs_test {
namespace {

using namespace testing;  // every name in resident_testing.hpp

const ResidentMethod kMethods[] = {
    {"efsign", "memory = \"residual-simulated\"\nscheduler = \"fusion\"", 0, "efsign-simulated",
     ""},
    {"efsign_with_dgc", "memory = \"dgc-simulated\"\nscheduler = \"wfbp\"", 0, "efsign-simulated",
     ""},
    {"onebit", "memory = \"residual-simulated\"\nscheduler = \"wfbp\"", 0, "onebit-simulated", ""},
    {"onebit_in_runs", "memory = \"residual-simulated\"\nscheduler = \"hipress\"", 0,
     "onebit-simulated", "bucket = 64\n"},
};

class DeviceSigns : public ::testing::TestWithParam<std::tuple<ResidentMethod, uint32_t>> {};
INSTANTIATE_TEST_SUITE_P(Methods, DeviceSigns,
                         ::testing::Combine(::testing::ValuesIn(kMethods),
                                            test::worlds({1, 2, 3}, {3})),
                         testing::name_and_size);

std::vector<float> floats_of(const std::string& bytes) {
  std::vector<float> values(bytes.size() / sizeof(float));
  if (!values.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

// The mean of each rank may differ by one rounding, and so may each sum of means.
void expect_near(const std::string& got, const std::string& expected, uint32_t ranks) {
  const std::vector<float> a = floats_of(got), b = floats_of(expected);
  ASSERT_EQ(a.size(), b.size());
  float largest = 0;
  for (const float value : b) largest = std::max(largest, std::fabs(value));
  const float most =
      largest * static_cast<float>(2 * ranks) * std::numeric_limits<float>::epsilon();
  for (size_t i = 0; i < a.size(); ++i) ASSERT_LE(std::fabs(a[i] - b[i]), most) << "entry " << i;
}

// Ranks have equal results if they have equal results on the CPU. A gradient that a rank has left
// out is not written.
void expect_agreement(const ResidentOutcome& got, const ResidentOutcome& on_cpu) {
  for (size_t rank = 1; rank < got.results.size(); ++rank)
    for (size_t step = 0; step < got.results[rank].size(); ++step)
      for (size_t g = 0; g < got.results[rank][step].size(); ++g)
        ASSERT_EQ(got.results[rank][step][g] == got.results[0][step][g],
                  on_cpu.results[rank][step][g] == on_cpu.results[0][step][g])
            << "rank " << rank << ", step " << step << ", gradient " << g;
}

TEST_P(DeviceSigns, BeginNearTheCpuAndHaveTheSameBitsOnAllDevices) {
  const auto& [method, size] = GetParam();
  const Script script = resident_script(method, size);
  const ResidentOutcome on_cpu = outcome_of(script, on_the_cpu);
  ResidentOutcome first;
  const uint64_t seeds = test::is_long() ? 10 : 2;
  for (uint64_t seed = 1; seed <= seeds && !HasFailure(); ++seed) {
    const SimulatedDevices devices(seed, seed % 2 == 0 ? 0.2 : 0);
    const ResidentOutcome got = outcome_of(script, by_rank);
    expect_agreement(got, on_cpu);
    for (uint32_t rank = 0; rank < size; ++rank)
      for (size_t g = 0; g < script.shapes.size(); ++g)
        expect_near(got.results[rank][0][g], on_cpu.results[rank][0][g], size);
    if (seed == 1) first = got;
    ASSERT_EQ(difference(got.results, first.results), "") << "seed " << seed;
    ASSERT_TRUE(got.saved == first.saved) << "seed " << seed;
  }
}

}  // namespace
}  // namespace penstock::resident_signs_test
