// Durations by the simulated device's clock: kLaunchUs for a launch, kCopyUs for a copy or a fill.

#include "core/device/stopwatch.hpp"

#include "tests/device/simulated.hpp"

#include <gtest/gtest.h>

namespace penstock::stopwatch_test {
namespace {

using simulated::kCopyUs, simulated::kLaunchUs;

class Watches : public ::testing::Test {
 protected:
  void SetUp() override {
    simulated::reset();
    auto stream = Stream::make(device_, false);
    auto memory = DeviceMemory::make(device_, kBytes);
    auto watch = Stopwatch::make(device_);
    for (const Status& status : {stream.status(), memory.status(), watch.status()})
      ASSERT_TRUE(status.ok()) << status.message();
    stream_ = std::move(*stream);
    memory_ = std::move(*memory);
    watch_.emplace(std::move(*watch));
  }
  void TearDown() override {
    for (const auto& report : simulated::reports()) ADD_FAILURE() << report.sentence;
    watch_.reset();
    stream_ = Stream();
    memory_ = DeviceMemory();
    for (const std::string& leak : simulated::leaks()) ADD_FAILURE() << leak;
    simulated::reset();
  }
  void fill(int times) {
    for (int i = 0; i < times; ++i) EXPECT_TRUE(stream_.clear(memory_.data(), kBytes).ok());
  }
  void launch() { EXPECT_TRUE(stream_.fill_nan(memory_.data(), 4, PENSTOCK_FLOAT32).ok()); }
  // Negative: no duration.
  double taken() {
    std::optional<double> us;
    const Status status = watch_->take(us);
    EXPECT_TRUE(status.ok()) << status.message();
    return us.value_or(-1);
  }

  static constexpr uint64_t kBytes = 1000;
  const Device device_{penstock_device, 1};
  Stream stream_;
  DeviceMemory memory_;
  std::optional<Stopwatch> watch_;
};

TEST_F(Watches, TellWhatTheDeviceTookBetweenTheirMarksAndOnce) {
  fill(5);
  ASSERT_TRUE(watch_->begin(stream_).ok());
  fill(2);
  launch();
  ASSERT_TRUE(watch_->end(stream_).ok());
  fill(7);
  ASSERT_TRUE(stream_.wait().ok());
  EXPECT_NEAR(taken(), 2 * kCopyUs + kLaunchUs, 1e-3);
  EXPECT_EQ(taken(), -1);
}

TEST_F(Watches, TellNothingBeforeTheDeviceHasComeToTheirEndAndDoNotWaitForIt) {
  EXPECT_EQ(taken(), -1);
  ASSERT_TRUE(watch_->begin(stream_).ok());
  ASSERT_TRUE(stream_.wait().ok());
  EXPECT_EQ(taken(), -1) << "it has no end yet";
  fill(1000);
  ASSERT_TRUE(watch_->end(stream_).ok());
  const uint64_t waits = simulated::waits().total();
  EXPECT_EQ(taken(), -1);
  EXPECT_EQ(simulated::waits().total(), waits);
  ASSERT_TRUE(stream_.wait().ok());
  EXPECT_NEAR(taken(), 1000 * kCopyUs, 0.1);
}

TEST_F(Watches, BeginAnewWhereAStretchHadNoEnd) {
  ASSERT_TRUE(watch_->begin(stream_).ok());
  fill(9);
  ASSERT_TRUE(watch_->begin(stream_).ok());
  launch();
  ASSERT_TRUE(watch_->end(stream_).ok());
  ASSERT_TRUE(stream_.wait().ok());
  EXPECT_NEAR(taken(), kLaunchUs, 1e-3);
}

TEST_F(Watches, PassOnWhatTheDeviceSays) {
  ASSERT_TRUE(watch_->begin(stream_).ok());
  ASSERT_TRUE(watch_->end(stream_).ok());
  ASSERT_TRUE(stream_.wait().ok());
  simulated::fail_call(simulated::Call::kEventElapsed, 1, 719);
  std::optional<double> us;
  const Status status = watch_->take(us);
  EXPECT_EQ(status.code(), Code::device_error);
  EXPECT_NE(status.message().find("cuda:1 cannot measure the time between two events"),
            std::string_view::npos)
      << status.message();
}

}  // namespace
}  // namespace penstock::stopwatch_test
