// Every compressor with a device version, with a memory with a device version. Results and kept
// values equal those on the CPU, for every number of ranks, with one bucket and with many.
//
// The bits are equal unless a method computes sums in floating point, because a device adds in
// another order. Then steps from equal states stay close to each other.

#include "core/set/on_devices/resident_testing.hpp"

#include <support/long.hpp>
#include <support/worlds.hpp>

namespace penstock::resident_methods_test {
namespace {

using namespace testing;  // every name in resident_testing.hpp

const ResidentMethod kMethods[] = {
    {"topk_with_residual", "memory = \"residual-simulated\"\nscheduler = \"fusion\""},
    {"topk_of_a_frontend_that_can_defer", kWithResidual, PENSTOCK_SET_DEFERRED_UPDATE},
    {"topk_with_dgc", "memory = \"dgc-simulated\"\nscheduler = \"fusion\""},
    {"topk_with_nesterov_and_room_for_all", "memory = \"dgc-simulated\"\nscheduler = \"wfbp\"", 0,
     "topk-simulated", "density = 0.4\n[memory.dgc-simulated]\nnesterov = true\nmomentum = 0.5\n"},
    {"topk_with_dgc_that_clips_values", kWithDgc, 0, "topk-simulated",
     "density = 0.05\n[memory.dgc-simulated]\nclipping = \"value\"\nclip = 0.5\n"},
    {"topk_told_of_void_buckets_first", "memory = \"residual-simulated\"\nscheduler = \"fusion\"",
     0, "topk-simulated", "density = 0.05\n", "nonfinite = \"strict\"\n"},
    {"topk_with_dgc_that_warms_up", "memory = \"dgc-simulated\"\nscheduler = \"fusion\"", 0,
     "topk-simulated",
     "density = 0.3\n[[switch]]\nat_step = 3\nset = { compressor.topk-simulated.density = 0.1 }\n"
     "[[switch]]\nat_step = 7\nset = { compressor.topk-simulated.density = 0.02 }\n"},
    {"fp16_with_residual", "memory = \"residual-simulated\"\nscheduler = \"fusion\"", 0,
     "fp16-simulated", ""},
    {"fp16_with_nothing_kept", "memory = \"none\"\nscheduler = \"hipress\"", 0, "fp16-simulated",
     ""},
    {"bf16_with_dgc", "memory = \"dgc-simulated\"\nscheduler = \"wfbp\"", 0, "bf16-simulated", ""},
    {"signsgd", "memory = \"none\"\nscheduler = \"fusion\"", 0, "signsgd-simulated", ""},
    {"signsgd_with_residual", "memory = \"residual-simulated\"\nscheduler = \"hipress\"", 0,
     "signsgd-simulated", ""},
    {"signum", "memory = \"momentum-simulated\"\nscheduler = \"fusion\"", 0, "signum-simulated",
     "[memory.momentum-simulated]\nmomentum = 0.7\n"},
    {"signum_one_by_one", "memory = \"momentum-simulated\"\nscheduler = \"wfbp\"", 0,
     "signum-simulated", ""},
    {"qsgd", kNothingKept, 0, "qsgd-simulated", "norm = \"max\"\nbucket = 64\n"},
    {"qsgd_with_residual", kWithResidual, 0, "qsgd-simulated", "norm = \"max\"\nbits = 8\n"},
    {"natural", kNothingKept, 0, "natural-simulated", ""},
    {"natural_with_residual", kWithResidual, 0, "natural-simulated", ""},
    {"terngrad", kNothingKept, 0, "terngrad-simulated", "clip = 0.0\n"},
    {"int8_with_residual", kWithResidual, 0, "int8-simulated", "block = 100\n"},
    {"maxmin", kNothingKept, 0, "maxmin-simulated", "block = 64\n"},
    {"maxmin_in_pieces_with_residual", "memory = \"residual-simulated\"\nscheduler = \"hipress\"",
     0, "maxmin-simulated", "bits = 3\nrounding = \"nearest\"\n"},
    {"tbq_with_residual", kWithResidual, 0, "tbq-simulated", "threshold = 0.5\n"},
    {"topk_in_halves", kWithResidual, 0, "topk-simulated",
     "density = 0.1\nvalue_type = \"fp16\"\n"},
    {"topk_in_bytes", kWithDgc, 0, "topk-simulated", "density = 0.1\nvalue_type = \"int8\"\n"},
    {"threshold", kWithResidual, 0, "threshold-simulated", "threshold = 1.5\n"},
    {"threshold_in_bytes_nothing_kept", "memory = \"none\"\nscheduler = \"fusion\"", 0,
     "threshold-simulated", "threshold = 1.0\nvalue_type = \"int8\"\n"},
    {"gaussiank", kWithResidual, 0, "gaussiank-simulated", "density = 0.05\n"},
    {"redsync", kWithDgc, 0, "redsync-simulated", "density = 0.05\n"},
    {"redsync_trimmed", kWithResidual, 0, "redsync-simulated",
     "density = 0.05\nsearch = \"trimmed\"\nvalue_type = \"bf16\"\n"},
    {"sidco", kWithResidual, 0, "sidco-simulated", "density = 0.05\n"},
    {"sidco_by_a_gamma_law_in_halves", kWithDgc, 0, "sidco-simulated",
     "density = 0.05\nlaw = \"gamma_pareto\"\nstages = 2\nvalue_type = \"fp16\"\n"},
    {"dgc", kWithDgc, 0, "dgc-simulated", "density = 0.02\n"},
    {"adtopk_by_rows", kWithResidual, 0, "adtopk-simulated", "density = 0.1\nmode = \"plain\"\n"},
    {"dgc_without_a_second_selection", kWithDgc, 0, "dgc-simulated",
     "density = 0.02\nresample = false\n"},
    {"adtopk_by_reused_thresholds", kWithResidual, 0, "adtopk-simulated",
     "density = 0.1\nmode = \"threshold\"\nwarm_up_steps = 3\nreuse_steps = 2\ntotal_steps = "
     "11\n"},
    {"adtopk_in_turn", kWithResidual, 0, "adtopk-simulated", "density = 0.1\n"},
    // Of a small vector every chunk would be sent, so its payload would be dense.
    {"chunktopk", kWithResidual, 0, "chunktopk-simulated",
     "density = 0.2\nchunk = 16\n[[rule]]\nmatch = { dims = { max = 1 } }\ncompressor = "
     "\"topk-simulated\"\n"},
    {"randomk", kWithResidual, 0, "randomk-simulated", "density = 0.1\n"},
    {"covap", kWithResidual, 0, "covap-simulated", "interval = 3\n"},
    {"randomk_in_halves_nothing_kept", "memory = \"none\"\nscheduler = \"fusion\"", 0,
     "randomk-simulated", "density = 0.1\nvalue_type = \"fp16\"\n"},
};

// Vectors use another compressor, because a dense vector would be staged.
const char* const kVectorsAsPairs =
    "[[rule]]\nmatch = { dims = { max = 1 } }\ncompressor = \"topk-simulated\"\n";
const ResidentMethod kLowRankMethods[] = {
    {"powersgd", "memory = \"residual-simulated\"\nscheduler = \"fusion\"", 0, "powersgd-simulated",
     "rank = 2\n"},
    {"powersgd_from_new_factors", "memory = \"none\"\nscheduler = \"wfbp\"", 0,
     "powersgd-simulated", "rank = 2\nwarm_start = false\n"},
    {"acpsgd", "memory = \"residual-simulated\"\nscheduler = \"fusion\"", 0, "acpsgd-simulated",
     "rank = 3\n"},
    {"powersgd_alternating", "memory = \"residual-simulated\"\nscheduler = \"wfbp\"", 0,
     "powersgd-alternating-simulated", "rank = 2\n"},
};

// Norms and means are sums in floating point.
constexpr const char* kClipped = "density = 0.05\n[memory.dgc-simulated]\nclip = 0.5\nclipping = ";
const std::string kToOwnNorm = std::string(kClipped) + "\"norm\"\n",
                  kToNormOfAll = std::string(kClipped) + "\"norm_global\"\n",
                  kByNormOfAll = std::string(kClipped) + "\"value_global\"\nnesterov = true\n";
const ResidentMethod kSummingMethods[] = {
    {"topk_clipped_to_its_norm", kWithDgc, 0, "topk-simulated", kToOwnNorm.c_str()},
    {"topk_clipped_to_the_norm_of_all", kWithDgc, 0, "topk-simulated", kToNormOfAll.c_str()},
    {"topk_clipped_by_the_norm_of_all", "memory = \"dgc-simulated\"\nscheduler = \"wfbp\"", 0,
     "topk-simulated", kByNormOfAll.c_str()},
    {"topk_clipped_and_told_of_void_buckets_first", kWithDgc, 0, "topk-simulated",
     kToNormOfAll.c_str(), "nonfinite = \"strict\"\n"},
    {"redsync_quantised", kWithResidual, 0, "redsync-simulated",
     "density = 0.05\nquantised = true\n"},
    {"redsync_quantised_trimmed_with_dgc", kWithDgc, 0, "redsync-simulated",
     "density = 0.05\nquantised = true\nsearch = \"trimmed\"\n"},
};

class DeviceMethods : public ::testing::TestWithParam<std::tuple<ResidentMethod, uint32_t>> {};
INSTANTIATE_TEST_SUITE_P(Methods, DeviceMethods,
                         ::testing::Combine(test::every_twelfth(kMethods),
                                            test::worlds({1, 3}, {3})),
                         testing::name_and_size);

TEST_P(DeviceMethods, GiveTheBitsOfTheCpu) {
  const auto& [method, size] = GetParam();
  const Script script = resident_script(method, size);
  const uint64_t first = size == 1 ? 2 : 1;
  expect_bits_of_the_cpu(script, by_rank, script, {first, test::is_long() ? 10 : first});
}

class LowRankMethods : public DeviceMethods {};
INSTANTIATE_TEST_SUITE_P(Methods, LowRankMethods,
                         ::testing::Combine(::testing::ValuesIn(kLowRankMethods),
                                            test::worlds({1, 2, 3}, {3})),
                         testing::name_and_size);

// A few steps of a script on devices, with several orders of the streams.
void expect_near_the_cpu(const Script& script, const Bound& bound) {
  const ResidentOutcome expected = outcome_of(script, on_the_cpu);
  ResidentOutcome first;
  const uint64_t seeds = test::is_long() ? 10 : 2;
  for (uint64_t seed = 1; seed <= seeds && !::testing::Test::HasFailure(); ++seed) {
    const SimulatedDevices devices(seed, seed % 2 == 0 ? 0.2 : 0);
    const ResidentOutcome got = outcome_of(script, by_rank);
    if (seed == 1) first = got;
    expect_near(got, expected, bound);
    ASSERT_EQ(difference(got.results, first.results), "") << "seed " << seed;
    ASSERT_TRUE(got.saved == first.saved) << "seed " << seed;
    expect_alike(got, expected);
  }
}

TEST_P(LowRankMethods, StayNearTheCpuWithEqualBitsOnDevices) {
  const auto& [method, size] = GetParam();
  // In the first step rounding is small. Later steps begin with the rounded states.
  expect_near_the_cpu(resident_script(method, size, kVectorsAsPairs), {1e-5, 1e-3});
}

class SummingMethods : public DeviceMethods {};
INSTANTIATE_TEST_SUITE_P(Methods, SummingMethods,
                         ::testing::Combine(test::every_twelfth(kSummingMethods),
                                            test::worlds({1, 2, 3}, {2})),
                         testing::name_and_size);

TEST_P(SummingMethods, StayNearTheCpuWithEqualBitsOnDevices) {
  const auto& [method, size] = GetParam();
  // A factor or a mean may differ by one rounding of float, and so may the values that twelve steps
  // add.
  expect_near_the_cpu(resident_script(method, size), {4 * 0x1p-23, 50 * 0x1p-23});
}

}  // namespace
}  // namespace penstock::resident_methods_test
