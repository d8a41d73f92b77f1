// Route split: sums are reduced and scattered in backward, and gathered in the next forward.

#include "core/set/testing.hpp"
#include "core/tensor/elements.hpp"

#include <cmath>

namespace penstock::split_test {
namespace {

using testing::make_set;
using testing::view_of;
using testing::with_ranks;

const std::string kDear = "scheduler = \"dear\"\nroute = \"split\"";

// A gradient of any floating type, with small integers, so that no type rounds a sum.
struct Typed {
  uint32_t dtype;
  uint64_t numel;
  std::vector<double> storage;  // room for the widest type, aligned

  Typed(uint32_t dtype, uint64_t numel) : dtype(dtype), numel(numel), storage(numel) {}
  void set(float (*value)(uint64_t element, uint32_t rank), uint32_t rank) {
    std::vector<float> values(numel);
    for (uint64_t i = 0; i < numel; ++i) values[i] = value(i, rank);
    from_float32(dtype, values.data(), storage.data(), numel);
  }
  std::vector<float> values() const {
    std::vector<float> result(numel);
    to_float32(dtype, storage.data(), result.data(), numel);
    return result;
  }
  penstock_tensor view() {
    std::vector<float> none;
    penstock_tensor tensor = view_of(none);
    tensor.data = storage.data();
    tensor.numel = numel;
    tensor.dtype = dtype;
    return tensor;
  }
};

float of_element(uint64_t element, uint32_t rank) {
  return float(element % 13) + 2 * float(rank);
}

// The mean over ranks 0 to 3 of element + 2 rank is element + 3.
std::vector<float> mean_of_four(uint64_t numel) {
  std::vector<float> result(numel);
  for (uint64_t i = 0; i < numel; ++i) result[i] = float(i % 13) + 3;
  return result;
}

Status run_deferred_step(Set& set, std::vector<Typed>& gradients) {
  for (size_t i = gradients.size(); i-- > 0;)
    PENSTOCK_TRY(set.gradient_ready(i, gradients[i].view()));
  PENSTOCK_TRY(set.backward_end());
  PENSTOCK_TRY(set.wait_all());
  return set.step_end(true);
}

// All gradients in one group: a model whose head, norms or experts have another type than the rest.
void expect_means_of(const std::vector<uint32_t>& dtypes) {
  with_ranks(4, testing::scheme_text(kDear), [&](Runtime& runtime, uint32_t rank) {
    std::vector<testing::GradientShape> shapes;
    std::vector<Typed> gradients;
    for (size_t i = 0; i < dtypes.size(); ++i) {
      const uint64_t numel = 40 + 7 * i;
      shapes.push_back({fmt::format("gradient {}", i), {int64_t(numel)}, dtypes[i]});
      gradients.emplace_back(dtypes[i], numel);
    }
    auto set = make_set(runtime, shapes, PENSTOCK_SET_DEFERRED_UPDATE);
    ASSERT_OK(set.status());
    for (int step = 0; step < 3; ++step) {
      for (Typed& gradient : gradients) gradient.set(of_element, rank);
      ASSERT_OK(run_deferred_step(*set.value(), gradients));
      for (const Typed& gradient : gradients)
        EXPECT_EQ(gradient.values(), mean_of_four(gradient.numel))
            << dtype_name(gradient.dtype) << " in step " << step << " on rank " << rank;
    }
  });
}

TEST(RouteSplit, AveragesGradientsOfEveryTypeInOneBucket) {
  const uint32_t floating[] = {PENSTOCK_FLOAT16, PENSTOCK_BFLOAT16, PENSTOCK_FLOAT32,
                               PENSTOCK_FLOAT64};
  for (const uint32_t first : floating)
    for (const uint32_t second : floating) expect_means_of({first, second});
  expect_means_of({PENSTOCK_FLOAT32, PENSTOCK_FLOAT16, PENSTOCK_FLOAT64, PENSTOCK_FLOAT32,
                   PENSTOCK_BFLOAT16, PENSTOCK_FLOAT16});
}

// One gradient that is not finite makes the whole bucket void, for every type.
TEST(RouteSplit, IsVoidForEveryTypeWhereOneIsNotFinite) {
  with_ranks(2, testing::scheme_text(kDear), [&](Runtime& runtime, uint32_t rank) {
    std::vector<Typed> gradients{{PENSTOCK_FLOAT32, 9}, {PENSTOCK_FLOAT16, 5}};
    auto set =
        make_set(runtime, {{"a", {9}}, {"b", {5}, PENSTOCK_FLOAT16}}, PENSTOCK_SET_DEFERRED_UPDATE);
    ASSERT_OK(set.status());
    for (const size_t bad : {size_t{0}, size_t{1}}) {
      for (Typed& gradient : gradients) gradient.set(of_element, rank);
      if (rank == 1) gradients[bad].set([](uint64_t, uint32_t) { return INFINITY; }, rank);
      ASSERT_OK(run_deferred_step(*set.value(), gradients));
      for (const Typed& gradient : gradients)
        for (const float value : gradient.values()) ASSERT_TRUE(std::isnan(value)) << bad;
    }
  });
}

// With `strict` a void bucket is known before its first leg would be sent.
TEST(RouteSplit, GoesOnUnderStrictWhereOneIsNotFinite) {
  const std::string text = testing::scheme_text(kDear, "nonfinite = \"strict\"\n");
  with_ranks(2, text, [&](Runtime& runtime, uint32_t rank) {
    std::vector<Typed> gradients{{PENSTOCK_FLOAT32, 9}, {PENSTOCK_FLOAT32, 5}};
    auto set = make_set(runtime, {{"a", {9}}, {"b", {5}}}, PENSTOCK_SET_DEFERRED_UPDATE);
    ASSERT_OK(set.status());
    for (int step = 0; step < 3; ++step) {
      for (Typed& gradient : gradients)
        gradient.set([](uint64_t, uint32_t r) { return float(2 * r); }, rank);
      if (step == 1 && rank == 1) gradients[0].set([](uint64_t, uint32_t) { return NAN; }, rank);
      ASSERT_OK(run_deferred_step(*set.value(), gradients));
      for (const Typed& gradient : gradients)
        for (const float value : gradient.values())
          ASSERT_TRUE(step == 1 ? std::isnan(value) : value == 1) << value << " in step " << step;
    }
    penstock_counters counters{};
    counters.struct_size = sizeof counters;
    set.value()->counters(counters);
    EXPECT_EQ(counters.void_buckets, 1u);
  });
}

// Legs that wait for the next forward are launched, because no forward follows.
TEST(RouteSplit, CanBeResetInMidStep) {
  with_ranks(2, testing::scheme_text(kDear), [&](Runtime& runtime, uint32_t rank) {
    std::vector<Typed> gradients{{PENSTOCK_FLOAT32, 9}, {PENSTOCK_FLOAT32, 5}};
    auto set = make_set(runtime, {{"a", {9}}, {"b", {5}}}, PENSTOCK_SET_DEFERRED_UPDATE);
    ASSERT_OK(set.status());
    for (size_t i = 0; i < 2; ++i) ASSERT_OK(set.value()->gradient_ready(i, gradients[i].view()));
    ASSERT_OK(set.value()->reset());
    for (Typed& gradient : gradients)
      gradient.set([](uint64_t, uint32_t r) { return float(2 * r); }, rank);
    ASSERT_OK(run_deferred_step(*set.value(), gradients));
    for (const Typed& gradient : gradients)
      for (const float value : gradient.values()) ASSERT_EQ(value, 1);
  });
}

}  // namespace
}  // namespace penstock::split_test
