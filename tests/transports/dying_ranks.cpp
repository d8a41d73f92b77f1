// Part of transport_ranks: the last rank is killed, and the other ranks must continue. Each test
// runs separately, without a launcher that would end the survivors.
#include "rank.hpp"

#include <csignal>
#include <string>
#include <vector>

namespace penstock::test {
namespace {

uint32_t last() {
  return me->size - 1;
}

void expect_the_last_to_be_named(const Outcome& outcome) {
  EXPECT_EQ(outcome.code, PENSTOCK_PEER_FAILED) << outcome.message;
  EXPECT_NE(outcome.message.find("rank " + std::to_string(last()) + " "), std::string::npos)
      << outcome.message;
}

// The survivors still reach each other, and no rank waits for the dead rank.
void expect_that_others_go_on() {
  me->aborted = true;
  expect_the_last_to_be_named(me->exchange(message_of(PENSTOCK_BARRIER, 9)));
  std::vector<uint32_t> survivors(last());
  std::iota(survivors.begin(), survivors.end(), 0u);
  penstock_channel* channel = me->open(survivors, 50);
  float one = 1;
  auto message = message_of(PENSTOCK_ALL_REDUCE, 3);
  message.send = message.receive = &one;
  message.count = 1;
  const Outcome outcome = me->exchange(message, channel);
  EXPECT_TRUE(outcome.ok()) << outcome.message;
  EXPECT_EQ(one, static_cast<float>(last()));
  me->table.close(me->self(), channel);
}

TEST(DyingRanks, OneThatNeverSendsIsNamedByThoseWhoWaitForIt) {
  EXPECT_TRUE(me->exchange(message_of(PENSTOCK_BARRIER, 1)).ok());
  if (me->rank == last()) std::raise(SIGKILL);
  std::vector<float> data(1000);
  auto message = message_of(PENSTOCK_RECEIVE, 2);
  message.receive = data.data();
  message.count = data.size();
  message.peer = last();
  expect_the_last_to_be_named(me->exchange(message));
  expect_that_others_go_on();
}

TEST(DyingRanks, OneThatDiesInTheMiddleOfAMessageIsNamed) {
  std::vector<float> data(8'000'000);
  auto message = message_of(PENSTOCK_ALL_REDUCE, 3);
  message.send = message.receive = data.data();
  message.count = data.size();
  if (me->rank == last()) {
    penstock_ticket* ticket = nullptr;
    PENSTOCK_ASSERT_OK(me->table.submit(me->self(), me->channel, &message, &ticket));
    uint32_t state = PENSTOCK_PENDING;
    for (int i = 0; i < 40; ++i) {
      PENSTOCK_ASSERT_OK(me->table.progress(me->self(), ticket, &state));
    }
    ASSERT_EQ(state, uint32_t{PENSTOCK_PENDING}) << "it was over before the rank could die";
    std::raise(SIGKILL);
  }
  expect_the_last_to_be_named(me->exchange(message));
  expect_that_others_go_on();
}

}  // namespace
}  // namespace penstock::test
