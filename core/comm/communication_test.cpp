// Messages of an ordered channel when an earlier turn never comes.
#include "core/comm/communication.hpp"

#include <gtest/gtest.h>

#include <future>

namespace penstock::communication_test {
namespace {

// An ordered transport whose messages never arrive.
penstock_collective silent_transport() {
  static int nothing = 0;
  penstock_collective table{};
  table.struct_size = sizeof table;
  table.describe = [](void*, penstock_collective_traits* traits) -> penstock_status* {
    traits->flags = PENSTOCK_COLLECTIVE_TRANSPORT | PENSTOCK_COLLECTIVE_ORDERED;
    return nullptr;
  };
  table.open = [](void*, const penstock_group*, const penstock_base_channel*,
                  const penstock_key_value_store*, uint64_t,
                  penstock_channel** channel) -> penstock_status* {
    *channel = reinterpret_cast<penstock_channel*>(&nothing);
    return nullptr;
  };
  table.submit = [](void*, penstock_channel*, const penstock_message*,
                    penstock_ticket** ticket) -> penstock_status* {
    *ticket = reinterpret_cast<penstock_ticket*>(&nothing);
    return nullptr;
  };
  table.progress = [](void*, penstock_ticket*, uint32_t* state) -> penstock_status* {
    *state = PENSTOCK_PENDING;
    return nullptr;
  };
  table.release = [](void*, penstock_ticket*) {};
  table.abort = [](void*, penstock_channel*) {};
  table.close = [](void*, penstock_channel*) {};
  return table;
}

class OutOfTurn final : public Transfer {
 public:
  explicit OutOfTurn(uint64_t place) { sequence = place; }
  void finished(Status status) override { end_.set_value(std::move(status)); }
  // The reason of the end, or an empty text if the message does not end.
  std::string end() {
    std::future<Status> end = end_.get_future();
    if (end.wait_for(std::chrono::seconds(20)) != std::future_status::ready) return "";
    return std::string(end.get().message());
  }

 private:
  std::promise<Status> end_;
};

class OrderedChannel : public ::testing::Test {
 protected:
  void SetUp() override {
    Communication::OpenRequest request{};
    request.table = &table_;
    request.group = Group::joined(0, std::vector<uint32_t>{0, 0}).value();
    request.group_id = 1;
    request.name = "ordered";
    auto channel = communication_.open_channel(request);
    ASSERT_TRUE(channel.ok()) << channel.status().message();
    channel_ = channel.value();
  }

  const penstock_collective table_ = silent_transport();
  // Declared first, because the communication thread uses them until it ends.
  OutOfTurn second_{1}, third_{2};
  Communication communication_;
  Channel* channel_ = nullptr;
};

TEST_F(OrderedChannel, EndsWhatWaitsForItsTurnWhenTheRunIsAborted) {
  communication_.submit(channel_, &second_);
  ASSERT_TRUE(communication_.run([] { return Status(); }).ok());  // the message has been taken
  communication_.abort(Status(Code::aborted, "rank 1 failed"));
  EXPECT_EQ(second_.end(), "rank 1 failed");
}

// The bucket was still encoding when the run was given up.
TEST_F(OrderedChannel, EndsWhatComesOutOfTurnAfterAnAbort) {
  communication_.abort(Status(Code::aborted, "rank 1 failed"));
  ASSERT_TRUE(communication_.run([] { return Status(); }).ok());  // the thread has seen the abort
  communication_.submit(channel_, &third_);
  EXPECT_EQ(third_.end(), "rank 1 failed");
}

TEST_F(OrderedChannel, EndsWhatWaitsForItsTurnWhenItIsClosed) {
  communication_.submit(channel_, &second_);
  communication_.skip(channel_, 2);
  communication_.close_channel(channel_);
  EXPECT_EQ(second_.end(), "channel 'ordered' was closed before this message was sent");
}

// Otherwise a step would take it for an arrival and read buffers that are not filled.
TEST(Progress, AStateThatIsNoneEndsTheMessageWithASentence) {
  penstock_collective table = silent_transport();
  table.progress = [](void*, penstock_ticket*, uint32_t* state) -> penstock_status* {
    *state = 77;
    return nullptr;
  };
  Communication::OpenRequest request{};
  request.table = &table;
  request.group = Group::joined(0, std::vector<uint32_t>{0, 0}).value();
  request.group_id = 1;
  request.name = "world";
  OutOfTurn message{0};
  Communication communication;
  const auto channel = communication.open_channel(request);
  ASSERT_TRUE(channel.ok()) << channel.status().message();
  communication.submit(channel.value(), &message);
  EXPECT_EQ(message.end(),
            "channel 'world': progress of the collective says that a message is in state 77, "
            "expected 0 (pending) or 1 (done); tell the plugin's author");
}

}  // namespace
}  // namespace penstock::communication_test
