// The states of an old plan, as a new plan finds them.
#include "core/state/state_store.hpp"

#include <gtest/gtest.h>
#include <penstock/item.h>

namespace penstock::state_store_test {
namespace {

constexpr ElementRange kAll{0, 6};

penstock_state_declaration declared(uint64_t rows, uint32_t state_class) {
  penstock_state_declaration state{};
  state.struct_size = sizeof state;
  state.rows = rows;
  state.cols = 1;
  state.dtype = PENSTOCK_FLOAT32;
  state.state_class = state_class;
  return state;
}

StateKey key(uint64_t first, uint64_t numel) {
  return {"weight", {first, numel}, 0, "memory/mine", "shift"};
}

float* claimed(StateStore& store, const ElementRange& range, uint64_t rows, uint32_t state_class) {
  const auto tensor = store.claim(key(range.first, range.numel), kAll, declared(rows, state_class));
  return static_cast<float*>(tensor.value()->c()->data);
}

std::vector<float> after_another_cut(uint32_t state_class, bool forgets) {
  StateStore earlier(forgets);
  for (const uint64_t first : {0, 3}) {
    float* values = claimed(earlier, {first, 3}, 3, state_class);
    for (uint64_t i = 0; i < 3; ++i) values[i] = float(first + i + 1);
  }
  StateStore later(forgets, &earlier);
  const float* values = claimed(later, {1, 4}, 4, state_class);
  return {values, values + 4};
}

TEST(StateStore, AllButSoftStatesFollowTheirElementsToAnotherCut) {
  for (const bool forgets : {false, true}) {
    for (const uint32_t kept :
         {PENSTOCK_STATE_MASS, PENSTOCK_STATE_LOCAL, PENSTOCK_STATE_REPLICATED})
      EXPECT_EQ(after_another_cut(kept, forgets), (std::vector<float>{2, 3, 4, 5}))
          << "class " << kept;
    EXPECT_EQ(after_another_cut(PENSTOCK_STATE_SOFT, forgets), std::vector<float>(4, 0.0f));
  }
}

TEST(StateStore, PiecesAreViewsOfOneTensor) {
  StateStore store(false);
  float* whole = claimed(store, kAll, 6, PENSTOCK_STATE_MASS);
  EXPECT_EQ(claimed(store, {2, 3}, 3, PENSTOCK_STATE_MASS), whole + 2);
  EXPECT_EQ(store.bytes(), 6 * sizeof(float));
}

TEST(StateStore, WhatIsKeptInAnotherShapeForbidsCuts) {
  for (const uint32_t kept : {PENSTOCK_STATE_MASS, PENSTOCK_STATE_LOCAL}) {
    StateStore store(false);
    EXPECT_TRUE(store.claim(key(0, 6), kAll, declared(2, kept)).ok());
    const auto cut = store.claim(key(0, 3), kAll, declared(2, kept));
    ASSERT_FALSE(cut.ok());
    EXPECT_EQ(cut.status().code(), Code::failed_precondition);
    EXPECT_NE(cut.status().message().find("gradient 'weight' cannot be cut"), std::string::npos);
  }
}

// ---- another number of ranks ----

penstock_state_declaration named(const char* name, uint64_t rows, uint32_t state_class,
                                 uint32_t on_resize) {
  penstock_state_declaration state = declared(rows, state_class);
  state.name = str(name);
  state.on_resize = on_resize;
  return state;
}

float* claim_named(StateStore& store, const char* name, uint64_t rows, uint32_t state_class,
                   uint32_t on_resize = PENSTOCK_RESIZE_SUM) {
  const auto tensor = store.claim({"weight", kAll, 0, "memory/mine", name}, kAll,
                                  named(name, rows, state_class, on_resize));
  return static_cast<float*>(tensor.value()->c()->data);
}

// The saved states of three ranks, with the values 1, 2 and 4.
std::vector<std::string> written(uint64_t soft_rows) {
  std::vector<std::string> shards;
  for (const float number : {1.0f, 2.0f, 4.0f}) {
    StateStore store(true);
    *claim_named(store, "mass", 6, PENSTOCK_STATE_MASS) = number;
    *claim_named(store, "local", 6, PENSTOCK_STATE_LOCAL) = number;
    *claim_named(store, "dropped", 6, PENSTOCK_STATE_LOCAL, PENSTOCK_RESIZE_DROP) = number;
    *claim_named(store, "factor", 6, PENSTOCK_STATE_REPLICATED) = 7;
    *claim_named(store, "soft", soft_rows, PENSTOCK_STATE_SOFT) = number;
    EXPECT_TRUE(store.write(shards.emplace_back()).ok());
  }
  return shards;
}

struct TakenOver {
  float mass, local, dropped, factor, soft;
  std::string said;
};
TakenOver taken_over(const std::vector<std::string>& shards, const Resize& to) {
  StateStore store(true);
  const float* const values[] = {
      claim_named(store, "mass", 6, PENSTOCK_STATE_MASS),
      claim_named(store, "local", 6, PENSTOCK_STATE_LOCAL),
      claim_named(store, "dropped", 6, PENSTOCK_STATE_LOCAL, PENSTOCK_RESIZE_DROP),
      claim_named(store, "factor", 6, PENSTOCK_STATE_REPLICATED),
      claim_named(store, "soft", 2, PENSTOCK_STATE_SOFT)};
  const std::vector<std::string_view> views(shards.begin(), shards.end());
  const Result<std::string> said = store.read_shards(views, to);
  EXPECT_TRUE(said.ok()) << said.status().message();
  return {*values[0], *values[1], *values[2],
          *values[3], *values[4], said.ok() ? said.value() : ""};
}

TEST(Resize, OfMassKeepsItsWorthAndOfLocalStatesTheSum) {
  const std::vector<std::string> shards = written(2);
  for (const bool averages : {false, true}) {
    const TakenOver first = taken_over(shards, {0, 2, 3, averages});
    const TakenOver second = taken_over(shards, {1, 2, 3, averages});
    const float worth = averages ? 2.0f / 3 : 1;
    EXPECT_FLOAT_EQ(first.mass, worth * 5);  // of ranks 0 and 2
    EXPECT_FLOAT_EQ(second.mass, worth * 2);
    EXPECT_EQ(first.local, 5);
    EXPECT_EQ(second.local, 2);
    EXPECT_EQ(first.dropped, 0);
    EXPECT_EQ(first.factor, 7);
    EXPECT_EQ(second.soft, 2);
    EXPECT_NE(first.said.find(averages ? "their mean over ranks" : "their sum over ranks"),
              std::string::npos)
        << first.said;
  }
  EXPECT_EQ(taken_over(shards, {4, 5, 3, true}).mass, 0);  // no old rank existed for it
  EXPECT_FLOAT_EQ(taken_over(shards, {2, 5, 3, true}).mass, 4 * 5.0f / 3);
}

TEST(Resize, DropsSoftStatesOfAnotherShapeAndSaysSo) {
  const TakenOver taken = taken_over(written(4), {0, 2, 3, true});
  EXPECT_EQ(taken.soft, 0);
  EXPECT_NE(taken.said.find("soft 'soft' of memory/mine: 1 tensors, dropped"), std::string::npos)
      << taken.said;
}

TEST(Resize, OfAnythingElseOfAnotherShapeIsAMismatch) {
  const std::vector<std::string> shards = written(2);
  StateStore store(true);
  claim_named(store, "mass", 1, PENSTOCK_STATE_MASS);
  const std::vector<std::string_view> views(shards.begin(), shards.end());
  EXPECT_EQ(store.read_shards(views, {0, 2, 3, true}).status().code(), Code::mismatch);
}

TEST(Resize, SaysWhatTheNextPlanHasNoPlaceFor) {
  StateStore store(true), next(true);
  claim_named(store, "mass", 6, PENSTOCK_STATE_MASS);
  claim_named(store, "soft", 2, PENSTOCK_STATE_SOFT);
  claim_named(store, "factor", 6, PENSTOCK_STATE_REPLICATED);
  claim_named(next, "factor", 6, PENSTOCK_STATE_REPLICATED);
  const std::string said = store.left_by(next);
  EXPECT_NE(said.find("mass 'mass' of memory/mine: 1 tensors, handed over"), std::string::npos);
  EXPECT_NE(said.find("soft 'soft' of memory/mine: 1 tensors, dropped"), std::string::npos);
  EXPECT_EQ(said.find("factor"), std::string::npos) << said;
}

}  // namespace
}  // namespace penstock::state_store_test
