// The C interface of libpenstock, as frontends use it.
#include <penstock/runtime.h>

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

namespace {

penstock_str str(const std::string& text) {
  return {text.data(), text.size()};
}

TEST(ErrorOfAFrontend, KeepsItsCodeAndACopyOfItsText) {
  for (uint32_t code = PENSTOCK_INVALID_ARGUMENT; code <= PENSTOCK_INTERNAL; ++code) {
    std::string text = "rank 3 of the run is gone";
    penstock_status* const error = penstock_error_make(code, str(text));
    text.assign(text.size(), '?');
    EXPECT_EQ(penstock_error_code(error), code);
    const penstock_str message = penstock_error_message(error);
    EXPECT_EQ(std::string(message.data, message.size), "rank 3 of the run is gone");
    penstock_error_free(error);
  }
}

TEST(ErrorOfAFrontend, ACodeThatNobodyKnowsIsInternal) {
  for (const uint32_t code : {uint32_t{PENSTOCK_INTERNAL} + 1, UINT32_MAX}) {
    penstock_status* const error = penstock_error_make(code, str("odd"));
    EXPECT_EQ(penstock_error_code(error), uint32_t{PENSTOCK_INTERNAL});
    penstock_error_free(error);
  }
}

TEST(ErrorOfAFrontend, OkIsNoError) {
  EXPECT_EQ(penstock_error_make(PENSTOCK_OK, str("well")), nullptr);
}

// ---- the outer step ----

// Numbers whose products and sums are not exact.
template <typename T>
std::vector<T> numbers(uint64_t count, double seed) {
  std::vector<T> all(count);
  for (uint64_t i = 0; i < count; ++i)
    all[i] = static_cast<T>(std::sin(seed + static_cast<double>(i)));
  return all;
}

template <typename T>
T rounded(T value) {  // a value that no fused operation can take up
  volatile T kept = value;
  return kept;
}

template <typename T>
struct Arrays {
  explicit Arrays(uint64_t count)
      : anchor(numbers<T>(count, 1)),
        drift(numbers<T>(count, 2)),
        momentum(numbers<T>(count, 3)),
        values(numbers<T>(count, 4)) {}

  penstock_outer_step step(double factor, bool nesterov, double mix) {
    penstock_outer_step made{};
    made.struct_size = sizeof made;
    made.anchor = anchor.data();
    made.drift = drift.data();
    made.momentum = factor > 0 ? momentum.data() : nullptr;
    made.values = values.data();
    made.count = anchor.size();
    made.lr = 0.7;
    made.factor = factor;
    made.mix = mix;
    made.dtype = std::is_same_v<T, float> ? PENSTOCK_FLOAT32 : PENSTOCK_FLOAT64;
    made.nesterov = nesterov ? 1 : 0;
    return made;
  }

  // The equations, element by element.
  void expect(double factor, bool nesterov, double mix) {
    const T f = static_cast<T>(factor), lr = static_cast<T>(0.7);
    const T own = static_cast<T>(mix), other = static_cast<T>(1 - mix);
    for (uint64_t i = 0; i < anchor.size(); ++i) {
      T gradient = drift[i];
      if (factor > 0) {
        momentum[i] = rounded<T>(rounded<T>(momentum[i] * f) + drift[i]);
        gradient = momentum[i];
        if (nesterov) gradient = rounded<T>(drift[i] + rounded<T>(momentum[i] * f));
      }
      anchor[i] = rounded<T>(anchor[i] - rounded<T>(gradient * lr));
      values[i] = mix == 0
                      ? anchor[i]
                      : rounded<T>(rounded<T>(values[i] * own) + rounded<T>(anchor[i] * other));
    }
  }

  bool operator==(const Arrays&) const = default;
  std::vector<T> anchor, drift, momentum, values;
};

template <typename T>
void the_step_is_that_of_the_equations() {
  // 300,000: past the caches. The odd sizes end in the middle of a vector and of a tile.
  for (const uint64_t count :
       {uint64_t{0}, uint64_t{1}, uint64_t{2047}, uint64_t{4099}, uint64_t{300'001}}) {
    for (const double factor : {0.0, 0.9}) {
      for (const bool nesterov : {false, true}) {
        for (const double mix : {0.0, 0.3}) {
          Arrays<T> ours(count), expected(count);
          const penstock_outer_step step = ours.step(factor, nesterov, mix);
          ASSERT_EQ(penstock_take_outer_step(&step), nullptr);
          expected.expect(factor, nesterov, mix);
          EXPECT_TRUE(ours == expected) << count << " " << factor << " " << nesterov << " " << mix;
        }
      }
    }
  }
}

TEST(OuterStep, HasTheBitsOfItsEquations) {
  the_step_is_that_of_the_equations<float>();
  the_step_is_that_of_the_equations<double>();
}

TEST(OuterStep, WithoutValuesTheParameterStays) {
  Arrays<float> ours(5000), expected(5000);
  penstock_outer_step step = ours.step(0.9, true, 0);
  step.values = nullptr;
  ASSERT_EQ(penstock_take_outer_step(&step), nullptr);
  const std::vector<float> before = expected.values;
  expected.expect(0.9, true, 0);
  expected.values = before;
  EXPECT_TRUE(ours == expected);
}

TEST(OuterStep, AnotherElementTypeOrAMissingArrayIsRefused) {
  Arrays<float> ours(3);
  const auto refusal = [](const penstock_outer_step& step) {
    penstock_status* const error = penstock_take_outer_step(&step);
    EXPECT_EQ(penstock_error_code(error), uint32_t{PENSTOCK_INVALID_ARGUMENT});
    const penstock_str message = penstock_error_message(error);
    std::string text(message.data, message.size);
    penstock_error_free(error);
    return text;
  };
  penstock_outer_step step = ours.step(0, false, 0);
  step.dtype = PENSTOCK_FLOAT16;
  EXPECT_EQ(refusal(step),
            "an outer step has the element type float16, expected float32 or float64");
  step = ours.step(0, false, 0);
  step.anchor = nullptr;
  EXPECT_EQ(refusal(step), "an outer step has no anchor");
  step = ours.step(0, false, 0);
  step.drift = nullptr;
  EXPECT_EQ(refusal(step), "an outer step has no drift");
}

}  // namespace
