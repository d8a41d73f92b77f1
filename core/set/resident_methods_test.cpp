// Every compressor that works on a device, with a memory that does: results and what is kept are
// those of the same gradients on the CPU, whatever the number of ranks, in buckets and alone.
//
// Bits are the CPU's but where a method forms sums in floating point, whose order on a device is
// another one; there, steps from the same state stay near each other.

#include "core/set/resident_testing.hpp"

#include <support/long.hpp>
#include <support/worlds.hpp>

namespace penstock::resident_methods_test {
namespace {

using namespace testing;  // all of resident_testing.hpp

constexpr const char* kNothingKept = "memory = \"none\"\nscheduler = \"fusion\"";
constexpr const char* kResidual = "memory = \"residual-simulated\"\nscheduler = \"fusion\"";

const ResidentMethod kMethods[] = {
    {"topk_with_residual", "memory = \"residual-simulated\"\nscheduler = \"fusion\""},
    {"topk_with_dgc", "memory = \"dgc-simulated\"\nscheduler = \"fusion\""},
    {"topk_with_nesterov_and_room_for_all", "memory = \"dgc-simulated\"\nscheduler = \"wfbp\"", 0,
     "topk-simulated", "density = 0.4\n[memory.dgc-simulated]\nnesterov = true\nmomentum = 0.5\n"},
    {"topk_told_of_void_buckets_first", "memory = \"residual-simulated\"\nscheduler = \"fusion\"",
     0, "topk-simulated", "density = 0.05\n", "nonfinite = \"strict\"\n"},
    {"topk_with_dgc_that_warms_up", "memory = \"dgc-simulated\"\nscheduler = \"fusion\"", 0,
     "topk-simulated",
     "density = 0.3\n[[switch]]\nat_step = 3\nset = { compressor.topk-simulated.density = 0.1 }\n"
     "[[switch]]\nat_step = 7\nset = { compressor.topk-simulated.density = 0.02 }\n"},
    {"qsgd", kNothingKept, 0, "qsgd-simulated", "norm = \"max\"\nbucket = 64\n"},
    {"qsgd_with_residual", kResidual, 0, "qsgd-simulated", "norm = \"max\"\nbits = 8\n"},
    {"natural", kNothingKept, 0, "natural-simulated", ""},
    {"natural_with_residual", kResidual, 0, "natural-simulated", ""},
    {"terngrad", kNothingKept, 0, "terngrad-simulated", "clip = 0.0\n"},
    {"int8_with_residual", kResidual, 0, "int8-simulated", "block = 100\n"},
    {"maxmin", kNothingKept, 0, "maxmin-simulated", "block = 64\n"},
    {"maxmin_in_pieces_with_residual", "memory = \"residual-simulated\"\nscheduler = \"hipress\"",
     0, "maxmin-simulated", "bits = 3\nrounding = \"nearest\"\n"},
    {"tbq_with_residual", kResidual, 0, "tbq-simulated", "threshold = 0.5\n"},
};

class DeviceMethods : public ::testing::TestWithParam<std::tuple<ResidentMethod, uint32_t>> {};
INSTANTIATE_TEST_SUITE_P(Methods, DeviceMethods,
                         ::testing::Combine(::testing::ValuesIn(kMethods),
                                            test::worlds({1, 2, 3, 4})),
                         [](const auto& info) {
                           return std::string(std::get<0>(info.param).name) + "_on_" +
                                  std::to_string(std::get<1>(info.param));
                         });

TEST_P(DeviceMethods, GiveTheBitsOfTheCpu) {
  const auto& [method, size] = GetParam();
  const Script script = resident_script(method, size);
  const ResidentOutcome expected = outcome_of(script, on_the_cpu);
  const uint64_t seeds = test::is_long() ? 100 : 2;
  for (uint64_t seed = 1; seed <= seeds && !HasFailure(); ++seed) {
    const SimulatedDevices devices(seed, seed % 2 == 0 ? 0.2 : 0);
    const ResidentOutcome got = outcome_of(script, by_rank);
    ASSERT_EQ(difference(got.results, expected.results), "") << "seed " << seed;
    ASSERT_TRUE(got.saved == expected.saved) << "seed " << seed;
  }
}

}  // namespace
}  // namespace penstock::resident_methods_test
