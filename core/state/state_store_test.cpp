// What a new plan finds of an old one's states.
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

}  // namespace
}  // namespace penstock::state_store_test
