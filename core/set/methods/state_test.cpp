// Saved states. An invalid state is refused, and the set continues unchanged.

#include "core/set/testing.hpp"

#include <testing/data.hpp>

namespace penstock::state_test {
namespace {

using testing::make_set;
using testing::scheme_text;
using testing::view_of;
using testing::with_ranks;

using Values = std::vector<std::vector<float>>;

const std::vector<testing::GradientShape> kShapes{{"weight", {32, 24}}, {"bias", {32}}};

Values gradients_of(uint32_t rank, uint64_t step) {
  return {test::heavy_tailed(768, 10 * step + rank),
          test::heavy_tailed(32, 500 + 10 * step + rank)};
}

// A step of a frontend that can update in the next forward.
Values step_of(Set& set, uint32_t rank, uint64_t step) {
  Values gradients = gradients_of(rank, step);
  const auto run = [&]() -> Status {
    for (size_t i = gradients.size(); i-- > 0;)
      PENSTOCK_TRY(set.gradient_ready(i, view_of(gradients[i])));
    PENSTOCK_TRY(set.backward_end());
    PENSTOCK_TRY(set.wait_all());
    return set.step_end(true);
  };
  const Status status = run();
  EXPECT_TRUE(status.ok()) << status.message();
  return gradients;
}

const std::string kTopK = "compressor = \"topk\"\nmemory = \"residual\"";
const std::string kAlternating = "compressor = \"acpsgd\"\nmemory = \"residual\"";
const std::string kLowRank = "compressor = \"powersgd\"\nmemory = \"residual\"";
const std::string kDense = "compressor = \"none\"";
const std::string kSplit = "compressor = \"none\"\nscheduler = \"dear\"";

struct Foreign {
  std::string from, into;
};

TEST(SavedState, OfAnotherMethodIsRefusedAndTheSetGoesOnToTheBit) {
  for (const Foreign& foreign :
       {Foreign{kAlternating, kTopK}, Foreign{kTopK, kDense}, Foreign{kSplit, kTopK},
        Foreign{kSplit, kDense}, Foreign{kTopK, kSplit}, Foreign{kLowRank, kAlternating},
        Foreign{kTopK, kLowRank}}) {
    const std::string context = foreign.from + " into " + foreign.into;
    std::vector<std::string> saved(2);
    with_ranks(2, scheme_text(foreign.from), [&](Runtime& runtime, uint32_t rank) {
      auto set = make_set(runtime, kShapes, PENSTOCK_SET_DEFERRED_UPDATE);
      ASSERT_OK(set.status());
      step_of(*set.value(), rank, 0);
      ASSERT_OK(set.value()->save(saved[rank]));
    });
    with_ranks(2, scheme_text(foreign.into), [&](Runtime& runtime, uint32_t rank) {
      auto tried = make_set(runtime, kShapes, PENSTOCK_SET_DEFERRED_UPDATE, "tried");
      auto other = make_set(runtime, kShapes, PENSTOCK_SET_DEFERRED_UPDATE, "other");
      ASSERT_OK(tried.status());
      ASSERT_OK(other.status());
      for (uint64_t step = 0; step < 3; ++step)
        ASSERT_EQ(step_of(*tried.value(), rank, step), step_of(*other.value(), rank, step));
      std::string before, after;
      ASSERT_OK(tried.value()->save(before));
      EXPECT_EQ(tried.value()->load(saved[rank]).code(), Code::mismatch) << context;
      ASSERT_OK(tried.value()->report().status());
      ASSERT_OK(tried.value()->save(after));
      EXPECT_TRUE(before == after) << context;
      for (uint64_t step = 3; step < 6; ++step)
        ASSERT_EQ(step_of(*tried.value(), rank, step), step_of(*other.value(), rank, step))
            << context;
    });
  }
}

}  // namespace
}  // namespace penstock::state_test
