// Carries without a set: how they are saved, shared out, put back and dropped.
#include "core/set/carries.hpp"

#include <gtest/gtest.h>

namespace penstock::carries_test {
namespace {

std::string_view bytes_of(const std::vector<float>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
}

// Gradient "a" has two elements, gradient "b" three.
class CarriesAlone : public ::testing::Test {
 protected:
  CarriesAlone() {
    set.name = "model";
    gradients.push_back(std::make_unique<Gradient>(DeclaredGradient("a", 0, {2})));
    gradients.push_back(std::make_unique<Gradient>(DeclaredGradient("b", 1, {3})));
  }
  SavedSet saved_with(std::vector<std::string_view> carries, uint32_t rank = 0) const {
    SavedSet saved;
    saved.name = "model";
    saved.rank = rank;
    saved.carries = std::move(carries);
    return saved;
  }
  std::vector<float> carry_of(size_t gradient) const {
    const Buffer& carry = gradients[gradient]->carry;
    const auto* first = carry.as<float>();
    return {first, first + carry.bytes() / sizeof(float)};
  }
  SetContext set;
  CompiledPlan::Gradients gradients;
  Carries carries{set, gradients};
};

TEST_F(CarriesAlone, WhatIsReadIsSeenAndNamedOnceItReplacesWhatWas) {
  const std::vector<float> left{1, 2};
  Result<Carries::Kept> kept = carries.read(saved_with({bytes_of(left), {}}));
  ASSERT_TRUE(kept.ok());
  EXPECT_EQ(carries.names(), "");
  carries.replace(std::move(*kept));
  EXPECT_EQ(carries.names(), "a\n");
  EXPECT_EQ(carry_of(0), left);
  EXPECT_EQ(carries.views(), (std::vector<std::string_view>{bytes_of(left), {}}));
}

TEST_F(CarriesAlone, WhatWasReplacedIsGivenBackAndCanBePutBack) {
  const std::vector<float> first{1, 2}, second{3, 4, 5};
  carries.replace(std::move(*carries.read(saved_with({bytes_of(first), {}}))));
  Carries::Kept before =
      carries.replace(std::move(*carries.read(saved_with({{}, bytes_of(second)}))));
  EXPECT_EQ(carries.names(), "b\n");
  carries.replace(std::move(before));
  EXPECT_EQ(carries.names(), "a\n");
  EXPECT_EQ(carry_of(0), first);
}

TEST_F(CarriesAlone, AreDroppedAllTogether) {
  const std::vector<float> a{1, 2}, b{3, 4, 5};
  carries.replace(std::move(*carries.read(saved_with({bytes_of(a), bytes_of(b)}))));
  carries.drop();
  EXPECT_EQ(carries.names(), "");
  EXPECT_EQ(carries.views(), std::vector<std::string_view>(2));
}

TEST_F(CarriesAlone, OfAnotherSizeAreRefusedByTheNameOfTheGradient) {
  const std::vector<float> three{1, 2, 3};
  const Status refused = carries.read(saved_with({bytes_of(three), {}})).status();
  EXPECT_EQ(refused.code(), Code::mismatch);
  EXPECT_EQ(refused.message(),
            "the saved state of set 'model' keeps 12 bytes for gradient 'a', expected 8");
}

TEST_F(CarriesAlone, OfTwoRanksAreAddedUpForTheOneThatLoads) {
  const std::vector<float> first{1, 2}, second{10, 20};
  std::string said;
  const Resize to{.rank = 0, .world = 1, .saved = 2, .averages = false};
  Result<Carries::Kept> kept = carries.read_shards(
      {saved_with({bytes_of(first), {}}, 0), saved_with({bytes_of(second), {}}, 1)}, to, said);
  ASSERT_TRUE(kept.ok());
  carries.replace(std::move(*kept));
  EXPECT_EQ(carry_of(0), (std::vector<float>{11, 22}));
  EXPECT_EQ(carries.names(), "a\n");
  EXPECT_EQ(said,
            "left to add by a switch: 1 gradients, taken over, their sum over ranks did not "
            "change\n");
}

TEST_F(CarriesAlone, ARankThatHasNoShareStillHasOneOfZeros) {
  const std::vector<float> first{1, 2};
  std::string said;
  const Resize to{.rank = 1, .world = 2, .saved = 1, .averages = false};
  Result<Carries::Kept> kept =
      carries.read_shards({saved_with({bytes_of(first), {}}, 0)}, to, said);
  ASSERT_TRUE(kept.ok());
  carries.replace(std::move(*kept));
  EXPECT_EQ(carry_of(0), (std::vector<float>{0, 0}));
  EXPECT_EQ(carries.names(), "a\n");
}

}  // namespace
}  // namespace penstock::carries_test
