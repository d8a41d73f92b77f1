// Every misfit is refused naming both sides and a way out; what fits, passes.
#include "core/fit/rules.hpp"

#include <gtest/gtest.h>
#include <penstock/runtime.h>

namespace penstock {
namespace {

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

FitGroup dense_group() {
  FitGroup group;
  group.example = "layer1.bias";
  group.compressor = {"none", uint64_t{1} << PENSTOCK_DEVICE_CPU,
                      0,      PENSTOCK_NEED_LOSSLESS | PENSTOCK_NEED_LINEAR,
                      1,      true,
                      false,  false,
                      false,  false};
  group.memory = {"none", false, false, false};
  return group;
}

FitGroup sparse_group() {
  FitGroup group = dense_group();
  group.example = "layer1.weight";
  group.compressor.name = "topk";
  group.compressor.need_flags = 0;
  group.compressor.sums = false;
  group.compressor.gathers = group.compressor.gathers_sparse = true;
  group.memory = {"residual", false, true, true};
  return group;
}

const CollectiveFacts kMpi = {
    "mpi",
    PENSTOCK_COLLECTIVE_TRANSPORT | PENSTOCK_COLLECTIVE_SAME_BITS | PENSTOCK_COLLECTIVE_RANK_ORDER,
    PENSTOCK_PATTERN_BIT(PENSTOCK_ALL_REDUCE) | PENSTOCK_PATTERN_BIT(PENSTOCK_ALL_GATHER) |
        PENSTOCK_PATTERN_BIT(PENSTOCK_REDUCE_SCATTER),
    uint64_t{1} << PENSTOCK_DEVICE_CPU};

FitInput good_input() {
  FitInput input;
  input.groups = {dense_group(), sparse_group()};
  input.collective = kMpi;
  input.scheduler = {"fusion", uint64_t{1} << PENSTOCK_ROUTE_FLAT, 0};
  input.world = 4;
  input.arena_bytes = 1 << 20;
  input.arena_limit_bytes = 1 << 30;
  return input;
}

FitInput oktopk_input() {
  FitInput input = good_input();
  input.collective = {"oktopk",
                      PENSTOCK_COLLECTIVE_COMPOSITE | PENSTOCK_COLLECTIVE_MAY_REFUSE |
                          PENSTOCK_COLLECTIVE_RANK_ORDER,
                      PENSTOCK_PATTERN_BIT(PENSTOCK_SPARSE_ALL_REDUCE),
                      uint64_t{1} << PENSTOCK_DEVICE_CPU};
  input.has_transport = true;
  input.transport = kMpi;
  return input;
}

FitInput dear_input() {
  FitInput input = good_input();
  input.groups = {dense_group()};
  input.scheduler = {"dear", uint64_t{1} << PENSTOCK_ROUTE_SPLIT,
                     PENSTOCK_SCHEDULER_LAUNCHES_IN_FORWARD};
  input.route = PENSTOCK_ROUTE_SPLIT;
  input.frontend = PENSTOCK_SET_DEFERRED_UPDATE;
  return input;
}

// The refusal; it must name all of `parts`.
void expect_refused(const FitInput& input, std::initializer_list<std::string_view> parts) {
  const Result<FitAdvice> advice = check_fit(input);
  ASSERT_FALSE(advice.ok());
  EXPECT_EQ(advice.status().code(), Code::failed_precondition);
  for (std::string_view part : parts)
    EXPECT_TRUE(contains(advice.status().message(), part)) << advice.status().message();
}

TEST(Fit, WhatBelongsTogetherPasses) {
  for (const FitInput& input : {good_input(), oktopk_input(), dear_input()}) {
    const Result<FitAdvice> advice = check_fit(input);
    ASSERT_TRUE(advice.ok()) << advice.status().message();
    EXPECT_TRUE(advice.value().warnings.empty());
  }
}

TEST(Fit, MomentumIsNotAppliedTwice) {
  FitInput input = good_input();
  input.groups[1].memory = {"dgc", true, true, true};
  EXPECT_TRUE(check_fit(input).ok());
  input.frontend = PENSTOCK_SET_OPTIMIZER_MOMENTUM;
  expect_refused(input,
                 {"memory \"dgc\"", "layer1.weight", "optimizer's momentum to 0", "\"residual\""});
}

TEST(Fit, ASchedulerThatWorksInTheForwardNeedsAFrontendThatWaitsThere) {
  FitInput input = dear_input();
  input.frontend = 0;
  expect_refused(input, {"scheduler \"dear\"", "DEFERRED_UPDATE", "\"fusion\""});
  input = good_input();
  input.scheduler.flags = PENSTOCK_SCHEDULER_LAUNCHES_IN_FORWARD;
  expect_refused(input, {"scheduler \"fusion\"", "DEFERRED_UPDATE"});
}

TEST(Fit, RouteSplitTakesOneLosslessSummedRound) {
  for (int fault = 0; fault < 4; ++fault) {
    FitInput input = dear_input();
    CompressorFacts& compressor = input.groups[0].compressor;
    compressor.name = "lossy";
    if (fault == 0) compressor.need_flags = PENSTOCK_NEED_LINEAR;
    if (fault == 1) compressor.need_flags = PENSTOCK_NEED_LOSSLESS;
    if (fault == 2) compressor.n_rounds = 2;
    if (fault == 3) compressor.sums = false;
    expect_refused(input, {"route \"split\"", "compressor \"lossy\"", "compressor = \"none\"",
                           "route = \"flat\""});
  }
}

TEST(Fit, ARouteMustBeOneThatTheSchedulerProduces) {
  FitInput input = good_input();
  input.route = PENSTOCK_ROUTE_SPLIT;
  expect_refused(input, {"scheduler \"fusion\"", "route \"split\"", "only \"flat\""});
}

TEST(Fit, RoutesOfLaterVersionsAreSaidToBeMissing) {
  for (const uint32_t route : {PENSTOCK_ROUTE_HIERARCHICAL, PENSTOCK_ROUTE_SHARD}) {
    FitInput input = good_input();
    input.route = route;
    const Status status = check_fit(input).status();
    EXPECT_EQ(status.code(), Code::unimplemented);
    EXPECT_TRUE(contains(status.message(), "not available in this version"));
  }
}

TEST(Fit, CandidatesNeedASchedulerThatChooses) {
  FitInput input = good_input();
  input.most_candidates = 2;
  expect_refused(input, {"candidates give 2 compressors", "scheduler \"fusion\"", "\"partial\""});
  input.scheduler.flags = PENSTOCK_SCHEDULER_CHOOSES;
  ASSERT_TRUE(check_fit(input).ok());
  EXPECT_TRUE(check_fit(input).value().warnings.empty());
  input.most_candidates = 1;
  const auto advice = check_fit(input);
  ASSERT_TRUE(advice.ok());
  ASSERT_EQ(advice.value().warnings.size(), 1u);
  EXPECT_TRUE(contains(advice.value().warnings[0], "no gradient has more than one"));
}

TEST(Fit, DeterminismExcludesPlansAndSumsThatDependOnTime) {
  FitInput input = good_input();
  input.deterministic = true;
  EXPECT_TRUE(check_fit(input).ok());
  input.scheduler.flags = PENSTOCK_SCHEDULER_MEASURES;
  expect_refused(input, {"deterministic", "scheduler \"fusion\"", "measured times"});
  input.scheduler.flags = 0;
  input.collective.flags &= ~uint32_t{PENSTOCK_COLLECTIVE_RANK_ORDER};
  expect_refused(input, {"deterministic", "collective \"mpi\"", "RANK_ORDER"});
  input = oktopk_input();
  input.deterministic = true;
  EXPECT_TRUE(check_fit(input).ok());
  input.transport.flags &= ~uint32_t{PENSTOCK_COLLECTIVE_RANK_ORDER};
  expect_refused(input, {"collective \"mpi\""});
}

TEST(Fit, ACompositeNeedsATransportAndATransportNone) {
  FitInput input = oktopk_input();
  input.has_transport = false;
  expect_refused(input, {"collective \"oktopk\"", "scheme.transport = \"mpi\""});
  input = good_input();
  input.has_transport = true;
  input.transport = kMpi;
  expect_refused(input, {"collective \"mpi\"", "remove it"});
  input = oktopk_input();
  input.transport = input.collective;
  expect_refused(input, {"scheme.transport = \"oktopk\"", "not a transport"});
}

TEST(Fit, RefusedEntriesNeedAMemoryThatTakesThemBack) {
  FitInput input = oktopk_input();
  input.groups[1].memory = {"none", false, false, false};
  expect_refused(input, {"collective \"oktopk\"", "memory \"none\"", "\"residual\""});
  input.groups[1].memory = {"half", false, true, false};
  expect_refused(input, {"memory \"half\""});
  // Dense gradients of the same scheme have nothing that could be refused.
  EXPECT_TRUE(check_fit(oktopk_input()).ok());
}

TEST(Fit, ASparseSumNeedsSparsePayloads) {
  FitInput input = oktopk_input();
  input.groups = {dense_group()};
  expect_refused(
      input, {"collective \"oktopk\"", "compressor \"none\"", "\"topk\"", "collective = \"mpi\""});
}

TEST(Fit, TheCollectiveOffersWhatTheCompressorNeeds) {
  FitInput input = good_input();
  input.collective.patterns = PENSTOCK_PATTERN_BIT(PENSTOCK_ALL_REDUCE);
  expect_refused(input, {"compressor \"topk\"", "collective \"mpi\"", "all-gather"});
  input.collective.patterns = PENSTOCK_PATTERN_BIT(PENSTOCK_ALL_GATHER);
  expect_refused(input, {"compressor \"none\"", "all-reduce"});
  input.world = 1;
  EXPECT_TRUE(check_fit(input).ok());
  input = dear_input();
  input.collective.patterns = PENSTOCK_PATTERN_BIT(PENSTOCK_ALL_REDUCE);
  expect_refused(input, {"reduce-scatter"});
}

TEST(Fit, AMethodThatNeedsKeptMassGetsAMemoryThatKeeps) {
  FitInput input = good_input();
  input.groups[1].compressor.traits = PENSTOCK_COMPRESSOR_NEEDS_KEPT_MASS;
  EXPECT_TRUE(check_fit(input).ok());
  input.groups[1].memory = {"none", false, false, false};
  expect_refused(input, {"compressor \"topk\"", "memory \"none\"", "\"residual\""});
}

TEST(Fit, WhatLosesNothingNeedsNoMemory) {
  FitInput input = good_input();
  input.groups[0].compressor.traits =
      PENSTOCK_COMPRESSOR_NEEDS_KEPT_MASS | PENSTOCK_COMPRESSOR_NEEDS_MEMORY;
  const Result<FitAdvice> advice = check_fit(input);
  ASSERT_TRUE(advice.ok()) << advice.status().message();
  EXPECT_TRUE(advice.value().warnings.empty());
}

TEST(Fit, GroupsWithEqualFactsAreOne) {
  FitInput input;
  add_group(input, sparse_group());
  FitGroup other = sparse_group();
  other.example = "layer2.weight";
  add_group(input, other);
  EXPECT_EQ(input.groups.size(), 1u);
  other.compressor.same_bits = true;
  add_group(input, other);
  other.memory.keeps = false;
  add_group(input, other);
  other.device_type = PENSTOCK_DEVICE_CUDA;
  add_group(input, other);
  EXPECT_EQ(input.groups.size(), 4u);
}

TEST(Fit, ABiasedMethodWithoutMemoryIsWarnedAbout) {
  FitInput input = good_input();
  input.groups[1].compressor.traits = PENSTOCK_COMPRESSOR_NEEDS_MEMORY;
  input.groups[1].memory = {"none", false, false, false};
  const Result<FitAdvice> advice = check_fit(input);
  ASSERT_TRUE(advice.ok());
  ASSERT_EQ(advice.value().warnings.size(), 1u);
  EXPECT_TRUE(contains(advice.value().warnings[0], "\"topk\""));
}

TEST(Fit, AVoteThatWantsAMemoryIsAdvisedToTakeTheMomentum) {
  FitInput input = good_input();
  input.groups[1].compressor.traits = PENSTOCK_COMPRESSOR_NEEDS_MEMORY;
  input.groups[1].compressor.final_result = true;
  input.groups[1].memory = {"none", false, false, false};
  Result<FitAdvice> advice = check_fit(input);
  ASSERT_TRUE(advice.ok());
  ASSERT_EQ(advice.value().warnings.size(), 1u);
  EXPECT_TRUE(contains(advice.value().warnings[0], "memory = \"momentum\""));
  input.groups[1].memory = {"momentum", false, true, false};
  advice = check_fit(input);
  ASSERT_TRUE(advice.ok());
  EXPECT_TRUE(advice.value().warnings.empty());
}

TEST(Fit, AVoteIsNoSum) {
  FitInput input = good_input();
  input.groups[1].compressor.final_result = true;
  input.frontend = PENSTOCK_SET_SUM;
  const Result<FitAdvice> advice = check_fit(input);
  ASSERT_TRUE(advice.ok());
  EXPECT_EQ(advice.value().warnings.size(), 1u);
}

TEST(Fit, SumsThatFeedReplicatedStateWantTheSameBitsOnAllRanks) {
  FitInput input = good_input();
  input.groups[0].compressor.same_bits = true;
  EXPECT_TRUE(check_fit(input).ok());
  input.collective.flags &= ~uint32_t{PENSTOCK_COLLECTIVE_SAME_BITS};
  expect_refused(input, {"compressor \"none\"", "SAME_BITS", "algorithm = \"direct\""});
  input.world = 1;
  EXPECT_TRUE(check_fit(input).ok()) << "a rank alone agrees with itself";
  input.world = 4;
  input.groups[0].compressor.same_bits = false;
  EXPECT_TRUE(check_fit(input).ok());
}

TEST(Fit, AGradientsDeviceIsOneTheCompressorKnows) {
  FitInput input = good_input();
  input.groups[0].device_type = PENSTOCK_DEVICE_CUDA;
  expect_refused(input, {"compressor \"none\"", "device type 2"});
}

TEST(Fit, AnArenaOverTheLimitIsRefusedWithItsSize) {
  FitInput input = good_input();
  input.arena_bytes = uint64_t{5} << 30;
  input.arena_limit_bytes = uint64_t{4} << 30;
  expect_refused(input, {"5120.0 MiB", "runtime.arena_limit_mb = 4096"});
}

// ---- Facts ----

TEST(Facts, JoinPhasesAndRounds) {
  const penstock_section_bound indices = {sizeof indices,  4, PENSTOCK_ROLE_INDICES,
                                          PENSTOCK_UINT32, 0, 0};
  const penstock_section_bound values = {sizeof values,    4, PENSTOCK_ROLE_VALUES,
                                         PENSTOCK_FLOAT32, 0, 0};
  const penstock_section_bound* const sections[] = {&indices, &values};
  penstock_round sum{}, gather{};
  sum.combine = PENSTOCK_COMBINE_SUM;
  sum.sections = sections + 1;
  sum.n_sections = 1;
  sum.flags = PENSTOCK_ROUND_SAME_BITS;
  gather.combine = PENSTOCK_COMBINE_GATHER;
  gather.sections = sections;
  gather.n_sections = 2;
  gather.result = PENSTOCK_RESULT_FINAL;
  const penstock_round* const both[] = {&sum, &gather};
  const penstock_round* const one[] = {&sum};
  penstock_compressor_need first{}, second{};
  first.rounds = both;
  first.n_rounds = 2;
  first.flags = PENSTOCK_NEED_LINEAR;
  second.rounds = one;
  second.n_rounds = 1;
  second.flags = PENSTOCK_NEED_LINEAR | PENSTOCK_NEED_LOSSLESS;
  const penstock_compressor_need* const needs[] = {&first, &second};
  penstock_compressor_traits traits{};
  traits.device_types = 2;
  const CompressorFacts facts = compressor_facts("x", traits, needs, 2);
  EXPECT_EQ(facts.n_rounds, 2u);
  EXPECT_TRUE(facts.sums && facts.gathers && facts.gathers_sparse && facts.same_bits &&
              facts.final_result);
  EXPECT_EQ(facts.need_flags, uint32_t{PENSTOCK_NEED_LINEAR});
  const CompressorFacts later = compressor_facts("x", traits, needs + 1, 1);
  EXPECT_FALSE(later.gathers || later.gathers_sparse || later.final_result);
}

TEST(Facts, AMemoryKeepsWhereItHasMass) {
  penstock_memory table{};
  table.struct_size = sizeof table;
  penstock_state_declaration state{};
  const penstock_state_declaration* const states[] = {&state};
  penstock_memory_need need{};
  need.states = states;
  need.n_states = 1;
  need.flags = PENSTOCK_MEMORY_OWNS_MOMENTUM;
  state.state_class = PENSTOCK_STATE_REPLICATED;
  EXPECT_FALSE(memory_facts("m", table, need).keeps);
  state.state_class = PENSTOCK_STATE_MASS;
  const MemoryFacts facts = memory_facts("m", table, need);
  EXPECT_TRUE(facts.keeps && facts.owns_momentum);
  EXPECT_FALSE(facts.has_give_back);
}

}  // namespace
}  // namespace penstock
