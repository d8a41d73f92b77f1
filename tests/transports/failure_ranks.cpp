// Part of transport_ranks: ranks that disagree, come late, join twice or abort.
#include "rank.hpp"
#include "tests/support/listening.hpp"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

namespace penstock::test {
namespace {

TEST(Ranks, RanksThatDisagreeAllGetAMismatchAndTheChannelLivesOn) {
  if (native || me->size == 1) GTEST_SKIP() << "needs the direct algorithm and two ranks";
  // Rank 1 has the larger count. Small and large messages, and one case with both.
  const std::vector<std::pair<uint64_t, uint64_t>> cases{
      {8, 9}, {1000, 2000}, {500'000, 500'001}, {100'000, 2'000'000}, {0, 1}};
  for (const auto& [usual, odd] : cases)
    for (uint32_t pattern : {PENSTOCK_ALL_REDUCE, PENSTOCK_REDUCE_SCATTER}) {
      const uint64_t count = me->rank == 1 ? odd : usual;
      auto data = values(me->rank, count);
      std::vector<float> received(count);
      std::vector<uint64_t> counts(me->size, 0);
      counts[0] = count;
      auto message = message_of(pattern, 3);
      message.send = data.data();
      message.receive = received.data();
      message.count = count;
      message.receive_counts = counts.data();
      const Outcome outcome = me->exchange(message);
      EXPECT_EQ(outcome.code, PENSTOCK_MISMATCH) << outcome.message;
      EXPECT_NE(outcome.message.find("tag 3"), std::string::npos) << outcome.message;
      EXPECT_NE(outcome.message.find("rank 1 has " + std::to_string(odd)), std::string::npos)
          << outcome.message;
    }
  auto message = message_of(me->rank == 0 ? PENSTOCK_BARRIER : PENSTOCK_ALL_REDUCE, 3);
  float one = 1;
  message.send = message.receive = &one;
  message.count = 1;
  EXPECT_EQ(me->exchange(message).code, PENSTOCK_MISMATCH);
  message.pattern = PENSTOCK_ALL_REDUCE;
  EXPECT_TRUE(me->exchange(message).ok());
  EXPECT_EQ(one, static_cast<float>(me->size));
}

TEST(Ranks, TooLittleRoomFailsOnlyWhereItIsAndNamesTheSender) {
  if (me->size == 1) GTEST_SKIP() << "needs two ranks";
  for (uint64_t count : {30, 1'500'000}) {
    const auto mine = values(me->rank, count);
    std::vector<float> received(me->size * count);
    std::vector<uint64_t> counts(me->size, count), offsets(me->size);
    for (uint32_t s = 0; s < me->size; ++s) offsets[s] = count * s;
    if (me->rank == 0) counts[1] = count - 5;
    auto message = message_of(PENSTOCK_ALL_GATHER, 6);
    message.send = mine.data();
    message.receive = received.data();
    message.count = count;
    message.receive_counts = counts.data();
    message.receive_offsets = offsets.data();
    const Outcome outcome = me->exchange(message);
    EXPECT_EQ(outcome.code, me->rank == 0 ? PENSTOCK_MISMATCH : PENSTOCK_OK) << outcome.message;
    const std::string expected = "rank 1 sent " + std::to_string(count) +
                                 " elements, there is room for " + std::to_string(count - 5);
    if (me->rank == 0) {
      EXPECT_NE(outcome.message.find(expected), std::string::npos) << outcome.message;
    }
  }
  EXPECT_TRUE(me->exchange(message_of(PENSTOCK_BARRIER, 6)).ok());
}

TEST(Ranks, ABroadcastOfAnotherSizeFailsForItsReceivers) {
  if (native || me->size == 1) GTEST_SKIP() << "needs the direct algorithm and two ranks";
  std::vector<float> data(300'001);
  auto message = message_of(PENSTOCK_BROADCAST, 6);
  message.send = message.receive = data.data();
  message.count = me->rank == 0 ? 300'001 : 300'000;
  const Outcome outcome = me->exchange(message);
  EXPECT_EQ(outcome.code, me->rank == 0 ? PENSTOCK_OK : PENSTOCK_MISMATCH) << outcome.message;
  EXPECT_TRUE(me->exchange(message_of(PENSTOCK_BARRIER, 6)).ok());
}

TEST(Ranks, AMessageThatIsNotDoneInTimeNamesTheSilentRanksAndDoesNoHarmLater) {
  if (native || me->size < 3) GTEST_SKIP() << "needs the direct algorithm and three ranks";
  if (me->rank != 1) {
    std::vector<float> data(1000);
    auto message = message_of(PENSTOCK_RECEIVE, 1);
    message.deadline_us = 1000;
    message.receive = data.data();
    message.count = 1000;
    message.peer = 1;
    const Outcome outcome = me->exchange(message);
    EXPECT_EQ(outcome.code, PENSTOCK_DEADLINE_EXCEEDED);
    EXPECT_NE(outcome.message.find("ranks 1"), std::string::npos) << outcome.message;
  }
  EXPECT_TRUE(me->exchange(message_of(PENSTOCK_BARRIER, 2)).ok());
}

TEST(Ranks, OpeningAGroupWhoseMembersDoNotComeEndsInTimeAndDoesNoHarmLater) {
  if (me->size == 1) GTEST_SKIP() << "needs two ranks";
  std::vector<uint32_t> all(me->size);
  std::iota(all.begin(), all.end(), 0u);
  if (me->rank != 1) {
    try {
      me->open(all, 77, 20'000);
      ADD_FAILURE() << "opened without rank 1";
    } catch (const std::runtime_error& error) {
      EXPECT_NE(std::string(error.what()).find("waited 0.02 s"), std::string::npos) << error.what();
    }
  }
  EXPECT_TRUE(me->exchange(message_of(PENSTOCK_BARRIER, 2)).ok());
  penstock_channel* channel = me->open(all, 78);
  EXPECT_TRUE(me->exchange(message_of(PENSTOCK_BARRIER, 2), channel).ok());
  me->table.close(me->self(), channel);
}

TEST(Ranks, AnotherJoinWorksAfterLeaveAndBeforeItUnlessThereIsOneForTheProcess) {
  try {
    Rank second;
    EXPECT_FALSE(second.is_process_global()) << "two instances joined at the same time";
    EXPECT_TRUE(second.exchange(message_of(PENSTOCK_BARRIER, 5)).ok());
    EXPECT_TRUE(me->exchange(message_of(PENSTOCK_BARRIER, 5)).ok());
  } catch (const std::runtime_error& error) {
    EXPECT_TRUE(me->is_process_global());
    EXPECT_NE(std::string(error.what()).find("another instance"), std::string::npos);
  }
  me.reset();
  me = std::make_unique<Rank>(0);  // from here on an all-reduce is not small
  for (uint64_t count : {0, 1, 9, 5000}) {
    auto data = values(me->rank, count);
    auto message = message_of(PENSTOCK_ALL_REDUCE, 3);
    message.send = message.receive = data.data();
    message.count = count;
    ASSERT_TRUE(me->exchange(message).ok());
    expect_sum(data.data(), ordered_sum(count));
  }
}

TEST(Ranks, ConnectionsHaveTheBuffersThatWereAskedFor) {
  if (socket_bytes == 0 || me->size == 1) GTEST_SKIP() << "needs --small-sockets and two ranks";
  EXPECT_TRUE(me->exchange(message_of(PENSTOCK_BARRIER, 6)).ok());
  uint32_t n_sent_through = 0, n_received_through = 0;
  for (const auto& open : std::filesystem::directory_iterator("/proc/self/fd")) {
    const int file = std::stoi(open.path().filename());
    const auto has = [&](int option) {
      int bytes = 0;
      socklen_t size = sizeof bytes;
      // Linux reserves the requested size twice.
      return getsockopt(file, SOL_SOCKET, option, &bytes, &size) == 0 && bytes == 2 * socket_bytes;
    };
    n_sent_through += has(SO_SNDBUF) ? 1 : 0;
    n_received_through += has(SO_RCVBUF) ? 1 : 0;
  }
  EXPECT_GE(n_sent_through, me->size - 1);
  EXPECT_GE(n_received_through, me->size - 1);
}

TEST(Ranks, ListenOnLoopbackAloneWhereAllShareAHost) {
  if (me->is_process_global()) GTEST_SKIP() << "MPI listens for its launcher";
  if (!loopback_has_ipv4()) GTEST_SKIP() << "there is no IPv4 on loopback";
  EXPECT_TRUE(me->exchange(message_of(PENSTOCK_BARRIER, 6)).ok());
  // The store of rank 0 listens on MASTER_PORT + 1 and may use any address.
  const char* const port = std::getenv("MASTER_PORT");
  const int of_store = port == nullptr ? 0 : std::atoi(port) + 1;
  for (const Listening& one : listening())
    EXPECT_TRUE(one.is_loopback || one.port == of_store)
        << "port " << one.port << " of " << one.address;
}

std::filesystem::path word_of(const std::string& what) {
  return std::filesystem::temp_directory_path() /
         ("penstock_" + std::to_string(getppid()) + "_" + what);
}

// Waits for ten seconds at most for the file that another rank writes.
bool has_come(const std::filesystem::path& word) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (!std::filesystem::exists(word) && std::chrono::steady_clock::now() < end)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return std::filesystem::exists(word);
}

// A message of one segment, which is copied and sent at once.
penstock_message one_way(bool sends, uint64_t tag, uint32_t peer, std::vector<float>& data) {
  auto message = message_of(sends ? PENSTOCK_SEND : PENSTOCK_RECEIVE, tag);
  message.send = message.receive = data.data();
  message.count = data.size();
  message.peer = peer;
  return message;
}

// The sender's last message is done before its receiver has begun. The message is larger than the
// buffers of the sockets. The sender makes no further call until the receiver has the message.
TEST(Ranks, WhatIsDoneArrivesThoughItsSenderNeverAsksAgain) {
  if (me->size == 1) GTEST_SKIP() << "needs two ranks";
  const auto came = word_of("came");
  std::vector<float> data = values(0, 15'000);
  auto message = one_way(me->rank == 0, 6, 1 - me->rank, data);
  message.deadline_us = 5'000'000;
  if (me->rank == 0) {
    EXPECT_TRUE(me->exchange(message).ok());
    EXPECT_TRUE(has_come(came));
  } else if (me->rank == 1) {
    std::fill(data.begin(), data.end(), 0.0f);
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    EXPECT_TRUE(me->exchange(message).ok());
    EXPECT_EQ(data, values(0, data.size()));
    std::ofstream(came).put('\n');
  }
  EXPECT_TRUE(me->exchange(message_of(PENSTOCK_BARRIER, 7)).ok());
  if (me->rank == 0) std::filesystem::remove(came);
}

// Rank 0 has sent to rank 1, which makes no further call. Then rank 0 fills its connection to rank
// 2, which comes late.
TEST(Ranks, TheLastMessageIsDoneThoughAnEarlierPeerNeverAsksAgain) {
  if (me->size < 3) GTEST_SKIP() << "needs three ranks";
  constexpr uint64_t kMany = 200;
  const auto quiet = word_of("quiet"), done = word_of("done");
  std::vector<float> data = values(0, 400);
  const auto carry_over = [&](bool sends, uint64_t tag, uint32_t peer) {
    auto message = one_way(sends, tag, peer, data);
    message.deadline_us = 0;
    EXPECT_TRUE(me->exchange(message).ok());
  };
  if (me->rank == 0) {
    carry_over(true, 6, 1);
    EXPECT_TRUE(has_come(quiet));
    for (uint64_t i = 0; i < kMany; ++i) carry_over(true, 10 + i, 2);
    std::ofstream(done).put('\n');
  } else if (me->rank == 1) {
    carry_over(false, 6, 0);
    std::ofstream(quiet).put('\n');
    EXPECT_TRUE(has_come(done));
  } else if (me->rank == 2) {
    EXPECT_TRUE(has_come(quiet));
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    for (uint64_t i = 0; i < kMany; ++i) carry_over(false, 10 + i, 0);
  }
  EXPECT_TRUE(me->exchange(message_of(PENSTOCK_BARRIER, 7)).ok());
  if (me->rank != 0) return;
  std::filesystem::remove(quiet);
  std::filesystem::remove(done);
}

// Runs in a separate process: after an abort the process ends without finalising MPI. The main
// channel stays open, so that the ranks can wait for each other's reports (see main).
TEST(Ranks, AbortEndsTicketsAndTheProcessStillEnds) {
  std::vector<uint32_t> all(me->size);
  std::iota(all.begin(), all.end(), 0u);
  penstock_channel* channel = me->open(all, 2);
  EXPECT_TRUE(me->exchange(message_of(PENSTOCK_BARRIER, 2), channel).ok());
  std::vector<float> data(1'000'000);
  auto message = message_of(PENSTOCK_ALL_REDUCE, 3);
  message.send = message.receive = data.data();
  message.count = data.size();
  penstock_ticket* ticket = nullptr;
  const bool late = me->rank == 0 && me->size > 1;
  if (!late) {
    PENSTOCK_EXPECT_OK(me->table.submit(me->self(), channel, &message, &ticket));
  }
  me->table.abort(me->self(), channel);
  me->aborted = true;
  if (!late) {
    uint32_t state = PENSTOCK_PENDING;
    EXPECT_TRUE(
        fails_with(me->table.progress(me->self(), ticket, &state), PENSTOCK_ABORTED, "aborted"));
    me->table.release(me->self(), ticket);
  } else {
    EXPECT_TRUE(fails_with(me->table.submit(me->self(), channel, &message, &ticket),
                           PENSTOCK_ABORTED, "aborted"));
  }
  me->table.close(me->self(), channel);
}

// Runs in a separate process. Rank 0 gives up while its receives are posted and uses their buffer
// for other data. Only then do the other ranks continue and send.
TEST(Ranks, AfterAbortAndReleaseNothingIsWrittenIntoAReceiveBuffer) {
  if (me->size == 1) GTEST_SKIP() << "needs two ranks";
  std::vector<uint32_t> all(me->size);
  std::iota(all.begin(), all.end(), 0u);
  penstock_channel* channel = me->open(all, 3);
  constexpr uint64_t kCount = 1'000'000;
  const auto mine = values(me->rank, kCount);
  std::vector<float> received(me->size * kCount);
  std::vector<uint64_t> counts(me->size, kCount), offsets(me->size);
  for (uint32_t r = 0; r < me->size; ++r) offsets[r] = r * kCount;
  auto message = message_of(PENSTOCK_ALL_GATHER, 3);
  message.send = mine.data();
  message.receive = received.data();
  message.count = kCount;
  message.receive_counts = counts.data();
  message.receive_offsets = offsets.data();
  penstock_ticket* ticket = nullptr;
  PENSTOCK_ASSERT_OK(me->table.submit(me->self(), channel, &message, &ticket));
  const auto poll = [&](int times) {
    uint32_t state = PENSTOCK_PENDING;
    for (int i = 0; i < times && state == PENSTOCK_PENDING; ++i)
      PENSTOCK_EXPECT_OK(me->table.progress(me->self(), ticket, &state));
  };
  const auto meet = [] { EXPECT_TRUE(me->exchange(message_of(PENSTOCK_BARRIER, 4)).ok()); };
  meet();  // all openings have left
  const auto give_up = [&] {
    me->table.abort(me->self(), channel);
    me->table.release(me->self(), ticket);
    std::fill(received.begin(), received.end(), 0.5f);
  };
  if (me->rank == 0) {
    poll(50);
    give_up();
  }
  meet();
  if (me->rank != 0) poll(2000);
  meet();
  if (me->rank == 0) {
    EXPECT_EQ(std::count(received.begin(), received.end(), 0.5f),
              static_cast<int64_t>(received.size()));
  } else {
    give_up();
  }
  me->aborted = true;
  me->table.close(me->self(), channel);
}

}  // namespace
}  // namespace penstock::test
