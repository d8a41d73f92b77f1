// Every misfit is refused with a message that names both sides and a fix; good combinations pass.
#include "core/fit/rules.hpp"

#include "core/fit/offers_testing.hpp"

#include <gtest/gtest.h>
#include <penstock/runtime.h>

namespace penstock::rules_test {
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
        PENSTOCK_PATTERN_BIT(PENSTOCK_REDUCE_SCATTER) | PENSTOCK_PATTERN_BIT(PENSTOCK_ALL_TO_ALL),
    uint64_t{1} << PENSTOCK_DEVICE_CPU};

FitInput good_input() {
  FitInput input;
  static const test::PlainOffers offers = test::usual_offers(kMpi, sparse_group().compressor);
  input.offers = &offers;
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

// Returns the refusal, which must name all `parts`.
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
  expect_refused(input, {"memory \"dgc\"", "layer1.weight", "optimizer's momentum to 0",
                         "memory = \"residual\""});
}

TEST(Fit, ASchedulerThatWorksInTheForwardNeedsAFrontendThatWaitsThere) {
  FitInput input = dear_input();
  input.frontend = 0;
  expect_refused(input, {"scheduler \"dear\"", "DEFERRED_UPDATE", "\"fusion\""});
  input = good_input();
  input.scheduler.flags = PENSTOCK_SCHEDULER_LAUNCHES_IN_FORWARD;
  expect_refused(input, {"scheduler \"fusion\"", "DEFERRED_UPDATE"});
}

TEST(Fit, RouteSplitTakesOneSummedRound) {
  for (int fault = 0; fault < 2; ++fault) {
    FitInput input = dear_input();
    CompressorFacts& compressor = input.groups[0].compressor;
    compressor.name = "lossy";
    compressor.need_flags = 0;
    EXPECT_TRUE(check_fit(input).ok());
    if (fault == 0) compressor.n_rounds = 2;
    if (fault == 1) compressor.gathers = true;
    expect_refused(input, {"route \"split\"", "compressor \"lossy\"", "compressor = \"none\"",
                           "route = \"flat\""});
  }
}

TEST(Fit, ARouteMustBeOneThatTheSchedulerProduces) {
  FitInput input = good_input();
  input.route = PENSTOCK_ROUTE_SPLIT;
  expect_refused(input, {"scheduler \"fusion\"", "route \"split\"", "only \"flat\""});
}

FitInput shard_input() {
  FitInput input = good_input();
  input.route = PENSTOCK_ROUTE_SHARD;
  input.scheduler.routes = uint64_t{1} << PENSTOCK_ROUTE_SHARD;
  return input;
}

// The first group whose compressor gathers.
FitGroup& gathering(FitInput& input) {
  return *std::find_if(input.groups.begin(), input.groups.end(),
                       [](const FitGroup& group) { return group.compressor.gathers; });
}

TEST(Fit, RouteShardTakesOneGatheredRoundThatAnOwnerCanEncodeAgain) {
  FitInput good = shard_input();
  EXPECT_TRUE(check_fit(good).ok()) << check_fit(good).status().message();
  FitInput rounds = good;
  gathering(rounds).compressor.n_rounds = 2;
  expect_refused(rounds, {"route \"shard\" carries one round", "has 2", "\"hierarchical\""});
  FitInput mixed = good;
  gathering(mixed).compressor.sums = true;
  expect_refused(mixed, {"sums some of its payloads and gathers others", "route = \"flat\""});
  FitInput state = good;
  gathering(state).compressor.replicates = true;
  expect_refused(state, {"keeps state that every rank updates", "only the owners receive these"});
  FitInput momentum = good;
  gathering(momentum).owner_memory.owns_momentum = true;
  expect_refused(momentum, {"momentum a second time", "owner_memory"});
  FitInput finishes = good;
  gathering(finishes).owner_memory.finishes = true;
  expect_refused(finishes, {"end the step on the owner only", "owner_memory"});
  FitInput loses = good;
  gathering(loses).compressor.traits = PENSTOCK_COMPRESSOR_NEEDS_KEPT_MASS;
  gathering(loses).owner_memory.name = "none";
  expect_refused(loses, {"owner_memory = \"none\" keeps nothing", "set it to \"residual\""});
}

TEST(Fit, RouteShardIsForPayloadsThatAreGathered) {
  FitInput input = shard_input();
  EXPECT_TRUE(check_fit(input).value().warnings.empty());
  input.groups = {dense_group()};
  const std::vector<std::string> warnings = check_fit(input).value().warnings;
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_TRUE(contains(warnings[0], "travel as on route \"flat\"")) << warnings[0];
  input.frontend = PENSTOCK_SET_RESULT_AT_OWNER;  // then sums go to their owners too
  EXPECT_TRUE(check_fit(input).value().warnings.empty());
}

TEST(Fit, AnOwnersMemoryIsForRouteShard) {
  FitInput input = good_input();
  input.names_owner_memory = true;
  expect_refused(input, {"scheme.owner_memory", "route \"flat\" has no owners that encode"});
  input = shard_input();
  input.names_owner_memory = true;
  EXPECT_TRUE(check_fit(input).ok());
}

TEST(Fit, RoutesWantThePatternsOfTheirLegs) {
  for (const auto& [route, pattern, said] :
       {std::tuple{PENSTOCK_ROUTE_HIERARCHICAL, PENSTOCK_REDUCE_SCATTER, "no reduce-scatter"},
        std::tuple{PENSTOCK_ROUTE_SHARD, PENSTOCK_ALL_TO_ALL, "no all-to-all"}}) {
    FitInput input = shard_input();
    input.route = uint32_t(route);
    input.scheduler.routes = uint64_t{1} << route;
    input.collective.patterns &= ~PENSTOCK_PATTERN_BIT(pattern);
    input.transport.patterns &= ~PENSTOCK_PATTERN_BIT(pattern);
    expect_refused(input, {said});
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
  expect_refused(input, {"collective \"oktopk\"", "scheme.transport = \"auto\""});
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
  // Dense gradients of such a scheme have no property that could be refused.
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

TEST(Fit, AMemoryThatAddsTheRestServesBiasedCompressors) {
  FitInput input = good_input();
  FitGroup& group = input.groups[1];
  group.compressor.traits = PENSTOCK_COMPRESSOR_NEEDS_MEMORY;
  group.compressor.need_flags = 0;
  group.memory = {.name = "ef21", .shifts = true};
  EXPECT_EQ(check_fit(input).value().warnings.size(), 1u);
  group.memory.adds_rest = true;
  EXPECT_TRUE(check_fit(input).value().warnings.empty());
}

TEST(Fit, AVoteIsNoSumThatAShiftCouldFollow) {
  FitInput input = good_input();
  input.groups[1].memory = {.name = "diana", .shifts = true};
  input.groups[1].compressor.final_result = true;
  expect_refused(input, {"memory \"diana\"", "a vote", "\"topk\""});
}

TEST(Fit, SumsThatReachAMemorysReplicatedStateHaveEqualBits) {
  FitInput input = good_input();
  input.groups[0].memory = {.name = "diana", .same_bits = true};
  EXPECT_TRUE(check_fit(input).ok());
  input.collective.flags &= ~uint32_t{PENSTOCK_COLLECTIVE_SAME_BITS};
  input.groups.resize(1);
  expect_refused(input, {"memory \"diana\"", "SAME_BITS", "algorithm = \"direct\""});
}

}  // namespace
}  // namespace penstock::rules_test
