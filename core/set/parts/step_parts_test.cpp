// The parts of a step without its engine: rates, the gate, and the checks of tensors.
#include "core/set/gate.hpp"
#include "core/set/handed_in.hpp"
#include "core/set/rates.hpp"

#include <gtest/gtest.h>

#include <cmath>

namespace penstock::step_parts_test {
namespace {

class StepParts : public ::testing::Test {
 protected:
  StepParts() {
    set.name = "model";
    set.step.grad_scale = 1;
    for (const char* name : {"a", "b"})
      gradients.push_back(
          std::make_unique<Gradient>(DeclaredGradient(name, gradients.size(), {2})));
  }
  SetContext set;
  CompiledPlan::Gradients gradients;
  Rates rates{set, gradients};
};

TEST_F(StepParts, RatesAreSetOneByOneOrAllAtOnceButForThoseThatStay) {
  EXPECT_TRUE(rates.set(0, 0.5).ok());
  const double all[] = {std::nan(""), 0.25};
  EXPECT_TRUE(rates.set_all(all).ok());
  EXPECT_EQ(gradients[0]->learning_rate, 0.5);
  EXPECT_EQ(gradients[1]->learning_rate, 0.25);
  EXPECT_EQ(rates.set(2, 1).message(), "set 'model' has no gradient 2");
  EXPECT_EQ(rates.set_all({all, 1}).message(),
            "set 'model' has 2 gradients and was given 1 learning rates");
}

TEST_F(StepParts, AScaleIsAboveZero) {
  for (const double scale : {0.0, -1.0, std::nan("")}) EXPECT_FALSE(rates.set_scale(scale).ok());
  EXPECT_TRUE(rates.set_scale(1024).ok());
  EXPECT_EQ(set.step.grad_scale, 1024);
}

TEST_F(StepParts, ARankThatHasJoinedTakesOverRatesAndScale) {
  ASSERT_TRUE(rates.set(1, 0.125).ok());
  ASSERT_TRUE(rates.set_scale(8).ok());
  const std::string facts = rates.facts();
  gradients[1]->learning_rate = set.step.grad_scale = 0;
  ASSERT_TRUE(rates.take(facts).ok());
  EXPECT_EQ(gradients[1]->learning_rate, 0.125);
  EXPECT_EQ(set.step.grad_scale, 8);
  EXPECT_EQ(rates.take(facts + "x").code(), Code::invalid_payload);
  EXPECT_EQ(rates.take("").code(), Code::invalid_payload);
}

// Only the address of the bucket is used.
BucketRun& bucket(char& place) {
  return reinterpret_cast<BucketRun&>(place);
}

TEST(Gate, HoldsBucketsInOrderUntilItIsOpenedAndAsksOnce) {
  Gate gate;
  char first = 0, second = 0;
  EXPECT_TRUE(gate.lets_pass(bucket(first)));
  EXPECT_FALSE(gate.take_question());
  int asked = 0;
  gate.shut([&] { ++asked; });
  EXPECT_FALSE(gate.lets_pass(bucket(second)));
  EXPECT_FALSE(gate.lets_pass(bucket(first)));
  gate.take_question()();
  EXPECT_FALSE(gate.take_question());
  EXPECT_EQ(asked, 1);
  EXPECT_EQ(gate.open(), (std::vector<BucketRun*>{&bucket(second), &bucket(first)}));
  EXPECT_TRUE(gate.lets_pass(bucket(first)));
  EXPECT_TRUE(gate.open().empty());
}

TEST(HandedIn, ATensorIsOfTheDtypeAndSizeOfItsGradientAndLiesWhereThatDoes) {
  const Gradient gradient(DeclaredGradient("a", 0, {2}));
  float values[] = {1, 2};
  const int64_t shape[] = {2};
  penstock_tensor tensor{};
  tensor.struct_size = sizeof tensor;
  tensor.shape = shape;
  tensor.data = values;
  tensor.numel = 2;
  tensor.n_dims = 1;
  tensor.dtype = PENSTOCK_FLOAT32;
  tensor.device_type = PENSTOCK_DEVICE_CPU;
  EXPECT_TRUE(check_handed_in(gradient, tensor).ok());
  penstock_tensor other = tensor;
  other.numel = 3;
  EXPECT_EQ(check_handed_in(gradient, other).message(),
            "gradient 'a' has 3 elements, but was declared with 2");
  other = tensor;
  other.dtype = PENSTOCK_FLOAT64;
  EXPECT_EQ(check_handed_in(gradient, other).message(),
            "gradient 'a' is float64, but was declared as float32");
  other = tensor;
  other.device_type = PENSTOCK_DEVICE_CUDA;
  EXPECT_FALSE(check_handed_in(gradient, other).ok());
  zero_if_here(gradient, other);
  EXPECT_EQ(values[0], 1);
  zero_if_here(gradient, tensor);
  EXPECT_EQ(values[0], 0);
  EXPECT_EQ(values[1], 0);
}

}  // namespace
}  // namespace penstock::step_parts_test
