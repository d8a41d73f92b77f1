// The bytes that a set sends, counted and compared, without a set.
#include "core/set/traffic.hpp"

#include <gtest/gtest.h>

namespace penstock::traffic_parts_test {
namespace {

class TrafficAlone : public ::testing::Test {
 protected:
  TrafficAlone() {
    set.name = "model";
    set.world = 4;
  }
  static StageTraffic stage(uint64_t from_step, double moved, bool open = false) {
    StageTraffic stage;
    stage.from_step = from_step;
    stage.moved = moved;
    stage.dense_moved = 1000;
    stage.bytes.gathered = moved;
    stage.bytes.open = open;
    stage.loses_from = 3;
    return stage;
  }
  std::string lines;
  Log log{LogLevel::info, [this](LogLevel, std::string_view line) { lines += line; }};
  SetContext set;
  Channel first, second;
  std::vector<Channel*> channels{&first, &second};
  Traffic traffic{set, channels, log};
};

TEST_F(TrafficAlone, TotalIsOfAllChannelsAndOfWhatGoesFromDeviceToDevice) {
  first.bytes_sent = 1, first.bytes_moved = 10, first.messages_sent = 100;
  second.bytes_sent = 2, second.bytes_moved = 20, second.messages_sent = 200;
  set.on_device.traffic.add(4, 40);
  const Sent total = traffic.total();
  EXPECT_EQ(total.handed_over, 7u);
  EXPECT_EQ(total.moved, 70u);
  EXPECT_EQ(total.messages, 301u);
}

TEST_F(TrafficAlone, StepsHaveNeitherSentWhatWasBeforeThemNorWhatMeasurementsSend) {
  first.bytes_moved = 5;  // during the creation of the set
  traffic.start();
  first.bytes_moved += 10;
  const Sent before = traffic.total();
  first.bytes_moved += 100;
  traffic.leave_out(before);
  EXPECT_EQ(traffic.by_steps().moved, 10u);
  EXPECT_EQ(traffic.by_measurements().moved, 100u);
}

TEST_F(TrafficAlone, AStageThatSendsMoreThanWithoutCompressionIsNamedWithItsSteps) {
  traffic.compare({stage(0, 10), stage(100, 5000)}, 0);
  EXPECT_NE(lines.find("set 'model' moves more than without compression"), std::string::npos);
  EXPECT_NE(lines.find("from step 100 on 5.00 kB (more from 3 ranks on)"), std::string::npos)
      << lines;
  EXPECT_EQ(traffic.dense_per_step(), 1000);
}

TEST_F(TrafficAlone, OnlyRankZeroSaysIt) {
  set.rank = 1;
  traffic.compare({stage(0, 5000)}, 0);
  EXPECT_EQ(lines, "");
}

TEST_F(TrafficAlone, WhatHasNoPlannedSizeIsComparedAfterTenSteps) {
  traffic.compare({stage(0, 10, true)}, 0);
  EXPECT_EQ(lines, "");
  EXPECT_FALSE(traffic.tells_after(9));
  ASSERT_TRUE(traffic.tells_after(10));
  first.bytes_moved = 50'000;
  traffic.compare_counted(10, Carriers{}, stage(0, 10, true));
  EXPECT_NE(lines.find("in its first 10 steps each of 4 ranks sent 5.00 kB a step"),
            std::string::npos)
      << lines;
  EXPECT_FALSE(traffic.tells_after(10));
}

}  // namespace
}  // namespace penstock::traffic_parts_test
