// Tests of reading models: order, phases, given buckets, and models without a possible plan.
#include "planning/model.hpp"

#include <gtest/gtest.h>

#include <cmath>

namespace penstock::planning {
namespace {

constexpr uint64_t kFlat = route_bit(PENSTOCK_ROUTE_FLAT);

ModelEntries three() {
  ModelEntries entries;
  entries.gradients = {dense_gradient("a", 1), dense_gradient("b", 2), dense_gradient("c", 3)};
  return entries;
}

TEST(Model, OrderIsTheReverseOfRegistrationUnlessGiven) {
  const OwnedModel owned(three());
  EXPECT_EQ(taking_part(owned.model(), 0), (std::vector<uint64_t>{2, 1, 0}));
  ModelEntries entries = three();
  entries.order = {1, 0, 2};
  const OwnedModel ordered(std::move(entries));
  EXPECT_EQ(taking_part(ordered.model(), 0), (std::vector<uint64_t>{1, 0, 2}));
}

TEST(Model, GradientsWithoutBytesLeaveAPhase) {
  ModelEntries entries = three();
  entries.period = 2;
  entries.gradients[0].candidates[0].phase_bytes = {4, 0};
  entries.gradients[1].candidates[0].phase_bytes = {0, 4};
  entries.gradients[2].candidates[0].phase_bytes = {4, 4};
  const OwnedModel owned(std::move(entries));
  EXPECT_EQ(taking_part(owned.model(), 0), (std::vector<uint64_t>{2, 0}));
  EXPECT_EQ(taking_part(owned.model(), 1), (std::vector<uint64_t>{2, 1}));
}

TEST(Model, AGradientWithoutElementsHasItsPlaceInPhaseZero) {
  ModelEntries entries = three();
  entries.period = 2;
  for (GradientEntry& gradient : entries.gradients) gradient.candidates[0].phase_bytes = {8, 8};
  entries.gradients[1].candidates[0].phase_bytes = {0, 0};
  const OwnedModel owned(std::move(entries));
  EXPECT_EQ(taking_part(owned.model(), 0), (std::vector<uint64_t>{2, 1, 0}));
  EXPECT_EQ(taking_part(owned.model(), 1), (std::vector<uint64_t>{2, 0}));
}

TEST(Model, GivenBucketsComeWhenTheirLastMemberIsReady) {
  ModelEntries entries;
  for (uint32_t i = 0; i < 5; ++i) entries.gradients.push_back(dense_gradient("g", 1));
  entries.order = {4, 3, 2, 1, 0};
  entries.flags = PENSTOCK_MODEL_GIVEN_BUCKETS;
  entries.gradients[4].given_bucket = 7;  // its last member is 0
  entries.gradients[0].given_bucket = 7;
  entries.gradients[3].given_bucket = 1;
  entries.gradients[2].given_bucket = 1;
  const OwnedModel owned(entries);
  EXPECT_EQ(units(owned.model(), 0), (std::vector<std::vector<uint64_t>>{{3, 2}, {1}, {4, 0}}));
  entries.flags = 0;  // without the flag the numbers have no meaning
  const OwnedModel free(entries);
  EXPECT_EQ(units(free.model(), 0).size(), 5u);
}

TEST(Model, ReadyTimesNeverRunBackwards) {
  ModelEntries entries = three();
  entries.gradients[2].ready_us = -1;  // the first of the order
  entries.gradients[1].ready_us = 7;
  entries.gradients[0].ready_us = 5;
  const OwnedModel owned(entries);
  EXPECT_EQ(ready_times(owned.model(), {2, 1, 0}), (std::vector<double>{0, 7, 7}));
  EXPECT_EQ(ready_times(owned.model(), {2, 0}), (std::vector<double>{0, 5}));
  entries.gradients[1].ready_us = std::nan("");
  const OwnedModel broken(entries);
  EXPECT_EQ(ready_times(broken.model(), {2, 1, 0}), (std::vector<double>{0, 0, 5}));
}

TEST(Model, BucketsByCountFollowTheOrderAndEndWithTheRest) {
  const OwnedModel owned(three());
  using Buckets = std::vector<std::vector<uint64_t>>;
  EXPECT_EQ(buckets_by_count(owned.model(), 0, 2), (Buckets{{2, 1}, {0}}));
  EXPECT_EQ(buckets_by_count(owned.model(), 0, 9), (Buckets{{2, 1, 0}}));
  EXPECT_EQ(buckets_by_count(owned.model(), 0, 0), (Buckets{{2}, {1}, {0}}));
}

TEST(Model, RunsKeepTheOrder) {
  using Buckets = std::vector<std::vector<uint64_t>>;
  EXPECT_EQ(runs_of({4, 2, 9, 7}, {1, 3}), (Buckets{{4}, {2, 9, 7}}));
  EXPECT_EQ(runs_of({4, 2}, {1, 1}), (Buckets{{4}, {2}}));
  EXPECT_TRUE(runs_of({}, {}).empty());
}

TEST(Model, BackwardIsSharedOutByElements) {
  ModelEntries entries;
  entries.gradients = {dense_gradient("a", 1), dense_gradient("b", 0), dense_gradient("c", 3)};
  const OwnedModel owned(entries);
  EXPECT_EQ(ready_by_elements(owned.model(), {2, 1, 0}, 8), (std::vector<double>{6, 6, 8}));
  EXPECT_EQ(ready_by_elements(owned.model(), {0, 2}, 8), (std::vector<double>{2, 8}));
  EXPECT_EQ(ready_by_elements(owned.model(), {1}, 8), (std::vector<double>{0}));
}

TEST(Model, ForwardOrderIsMeasuredOnlyWhereAllTimesAreKnown) {
  ModelEntries entries = three();
  const OwnedModel unknown(entries);
  EXPECT_EQ(forward_order(unknown.model()), (std::vector<uint64_t>{0, 1, 2}));
  entries.gradients[0].forward_us = 30;
  entries.gradients[1].forward_us = 10;
  entries.gradients[2].forward_us = 10;
  const OwnedModel measured(entries);
  EXPECT_EQ(forward_order(measured.model()), (std::vector<uint64_t>{1, 2, 0}));
  entries.gradients[1].forward_us = std::nan("");
  const OwnedModel broken(entries);
  EXPECT_EQ(forward_order(broken.model()), (std::vector<uint64_t>{0, 1, 2}));
}

TEST(Model, ProblemsAreNamed) {
  const auto problem = [](const ModelEntries& entries) {
    return find_problem(OwnedModel(entries).model(), kFlat);
  };
  EXPECT_EQ(problem(three()), "");
  EXPECT_EQ(problem(ModelEntries{}), "");  // no gradients: an empty plan
  ModelEntries entries = three();
  entries.period = 0;
  EXPECT_NE(problem(entries).find("period is 0"), std::string::npos);
  entries.period = 100000;
  EXPECT_NE(problem(entries).find("period is 100000"), std::string::npos);
  entries = three();
  entries.order = {0, 1, 1};
  EXPECT_NE(problem(entries).find("entry 2 of the model's order is 1"), std::string::npos);
  entries.order = {0, 1, 3};
  EXPECT_NE(problem(entries).find("is 3"), std::string::npos);
  entries = three();
  entries.gradients[1].candidates.clear();
  EXPECT_NE(problem(entries).find("gradient 1 has no candidate"), std::string::npos);
  entries = three();
  entries.route = PENSTOCK_ROUTE_SHARD;
  EXPECT_NE(problem(entries).find("route 4"), std::string::npos);
  entries.route = 200;
  EXPECT_NE(problem(entries).find("route 200"), std::string::npos);
  entries.route = PENSTOCK_ROUTE_FLAT;
  EXPECT_EQ(problem(entries), "");
}

TEST(Model, NullPointersAreProblemsNotCrashes) {
  const OwnedModel owned(three());
  penstock_model model = owned.model();
  model.order = nullptr;
  EXPECT_NE(find_problem(model, kFlat).find("order is null"), std::string::npos);
  model = owned.model();
  model.gradients = nullptr;
  EXPECT_NE(find_problem(model, kFlat).find("list of gradients is null"), std::string::npos);
  model = owned.model();
  model.links = nullptr;
  model.n_links = 1;
  EXPECT_NE(find_problem(model, kFlat).find("links are null"), std::string::npos);
  const penstock_gradient_model* none[3] = {nullptr, nullptr, nullptr};
  model = owned.model();
  model.gradients = none;
  EXPECT_NE(find_problem(model, kFlat).find("gradient 0 of the model is null"), std::string::npos);
}

TEST(Model, SumsStopAtTheLargestNumber) {
  EXPECT_EQ(saturating_add(1, 2), 3u);
  EXPECT_EQ(saturating_add(UINT64_MAX, 2), UINT64_MAX);
  EXPECT_EQ(saturating_add(UINT64_MAX - 1, 1), UINT64_MAX);
}

TEST(Model, MovingAnOwnedModelKeepsItsPointers) {
  OwnedModel first(three());
  const OwnedModel second(std::move(first));
  EXPECT_EQ(second.model().gradients[2]->numel, 3u);
  EXPECT_EQ(std::string(second.model().gradients[2]->name.data, 1), "c");
}

}  // namespace
}  // namespace penstock::planning
