// The order of legs that wait for the next forward, and how many are launched at once.

#include "core/set/testing.hpp"

#include <cmath>
#include <deque>

namespace penstock::forward_legs_test {
namespace {

using testing::make_set;
using testing::view_of;
using testing::with_ranks;

constexpr uint64_t kSmall = ForwardLegs::kFirstBytes / 2;

// Buckets without jobs: a test sees only their launch.
class ForwardLegsTest : public ::testing::Test {
 protected:
  void arm(const std::vector<uint64_t>& bytes) {
    for (const uint64_t each : bytes) {
      buckets_.emplace_back(context_, planning::Bucket{}, uint32_t(buckets_.size()));
      buckets_.back().forward_bytes = each;
      in_order_.push_back(&buckets_.back());
    }
    legs_.arm(in_order_);
  }
  // The launched buckets, as one character per bucket.
  std::string launched() const {
    std::string result;
    for (const BucketRun& bucket : buckets_) result += bucket.launched.load() ? 'x' : '.';
    return result;
  }

  SetContext context_;
  std::deque<BucketRun> buckets_;
  std::vector<BucketRun*> in_order_;
  ForwardLegs legs_;
};

TEST_F(ForwardLegsTest, NothingGoesBeforeForwardMayBegin) {
  arm({kSmall, kSmall});
  EXPECT_EQ(launched(), "..");
  legs_.launch();
  EXPECT_EQ(launched(), "xx");
}

TEST_F(ForwardLegsTest, AtFirstAsManyGoAsTogetherReachTheLeastBytes) {
  arm({kSmall, kSmall, kSmall, kSmall});
  legs_.launch();
  EXPECT_EQ(launched(), "xx..");
}

TEST_F(ForwardLegsTest, ALargeOneGoesAlone) {
  arm({2 * ForwardLegs::kMostBytes, kSmall, kSmall});
  legs_.launch();
  EXPECT_EQ(launched(), "x..");
  legs_.arrived(buckets_[0]);
  EXPECT_EQ(launched(), "xxx");
}

TEST_F(ForwardLegsTest, AsMuchGoesSideBySideAsHasArrived) {
  arm(std::vector<uint64_t>(12, kSmall));
  legs_.launch();
  legs_.arrived(buckets_[0]);  // 1 has arrived, below the minimum: 2 under way
  EXPECT_EQ(launched(), "xxx.........");
  legs_.arrived(buckets_[1]);
  legs_.arrived(buckets_[2]);  // 3 have arrived, 3 under way
  EXPECT_EQ(launched(), "xxxxxx......");
}

TEST_F(ForwardLegsTest, NoMoreGoesSideBySideThanTheMostBytes) {
  constexpr uint64_t kMost = ForwardLegs::kMostBytes;
  arm({4 * kMost, kMost / 2, kMost / 2, kMost / 2});
  legs_.launch();
  legs_.arrived(buckets_[0]);
  EXPECT_EQ(launched(), "xxx.");
}

TEST_F(ForwardLegsTest, AnArrivalCountsOnce) {
  arm({kSmall, kSmall, kSmall, kSmall});
  legs_.launch();
  legs_.arrived(buckets_[0]);
  legs_.arrived(buckets_[0]);
  EXPECT_EQ(launched(), "xxx.");
}

// A bucket that was void in backward has no such leg, and does not count.
TEST_F(ForwardLegsTest, WhatEndedBeforeForwardIsPassedOver) {
  arm({ForwardLegs::kMostBytes, kSmall, kSmall});
  legs_.arrived(buckets_[0]);
  EXPECT_EQ(launched(), "...");
  legs_.launch();
  EXPECT_EQ(launched(), ".xx");
}

TEST_F(ForwardLegsTest, ThoseWithoutSuchALegCountForNothing) {
  arm({ForwardLegs::kFirstBytes, kSmall});
  BucketRun flat(context_, {}, 2);
  legs_.launch();
  legs_.arrived(flat);
  EXPECT_EQ(launched(), "x.");
}

TEST_F(ForwardLegsTest, AllGoWhereNobodyIsGoingToWait) {
  arm({ForwardLegs::kMostBytes, ForwardLegs::kMostBytes, kSmall});
  legs_.launch();
  EXPECT_EQ(launched(), "x..");
  legs_.launch_all();
  EXPECT_EQ(launched(), "xxx");
}

TEST_F(ForwardLegsTest, TheNextStepBeginsAnew) {
  arm({ForwardLegs::kMostBytes, kSmall});
  legs_.launch_all();
  for (BucketRun& bucket : buckets_) {
    legs_.arrived(bucket);
    bucket.launched.store(false);
  }
  legs_.arm(in_order_);
  EXPECT_EQ(launched(), "..");
  legs_.launch();
  EXPECT_EQ(launched(), "x.");
}

// A set with more legs than are launched at once, and a non-finite gradient in the middle.
TEST(ForwardLegsOfASet, AllArriveWhenTheyAreMoreThanGoAtOnce) {
  const std::string scheme = testing::scheme_text("scheduler = \"dear\"\nroute = \"split\"",
                                                  "[scheduler.dear]\nthreshold_bytes = 0\n");
  with_ranks(2, scheme, [](Runtime& runtime, uint32_t rank) {
    constexpr size_t kGradients = 5, kElements = ForwardLegs::kFirstBytes / 4 - 3;
    std::vector<testing::GradientShape> shapes;
    for (size_t i = 0; i < kGradients; ++i)
      shapes.push_back({fmt::format("layer{}.weight", i), {int64_t(kElements)}});
    auto set = make_set(runtime, shapes, PENSTOCK_SET_DEFERRED_UPDATE);
    ASSERT_OK(set.status());
    for (int step = 0; step < 3; ++step) {
      std::vector<std::vector<float>> gradients(kGradients,
                                                std::vector<float>(kElements, 2 * rank));
      if (step == 1 && rank == 1) gradients[2][7] = INFINITY;
      for (size_t i = kGradients; i-- > 0;)
        ASSERT_OK(set.value()->gradient_ready(i, view_of(gradients[i])));
      ASSERT_OK(set.value()->backward_end());
      for (size_t i = 0; i < kGradients; ++i) {
        ASSERT_OK(set.value()->wait(i));
        const bool is_void = step == 1 && i == 2;
        for (const float value : {gradients[i].front(), gradients[i].back()})
          EXPECT_TRUE(is_void ? std::isnan(value) : value == 1) << i << " in step " << step;
      }
      ASSERT_OK(set.value()->step_end(true));
    }
  });
}

}  // namespace
}  // namespace penstock::forward_legs_test
