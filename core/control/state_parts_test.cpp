// Each part of the control server's state alone: the store, the members, the rendezvous.
#include "core/control/patience.hpp"
#include "core/control/rendezvous_table.hpp"
#include "core/control/store.hpp"

#include <gtest/gtest.h>

namespace penstock::control::state_parts_test {
namespace {

constexpr uint64_t kSecondUs = 1'000'000;

// The sent frames, as "RANK KIND". A reply also has its outcome.
class Parts : public ::testing::Test {
 protected:
  Parts() {
    options.size = 3;
    options.deadline_us = 10 * kSecondUs;
    options.rendezvous_us = 60 * kSecondUs;
    options.pulse_us = kSecondUs;
  }
  // Call it after the options are set.
  void make() {
    members.emplace(options, send);
    rendezvous_table.emplace(options, send, *members);
    for (uint32_t rank = 0; rank < options.size; ++rank) ASSERT_TRUE(members->join(rank, 0).ok());
    members->begin_if_all_are_here(0);
    sent.clear();
  }
  static Reader body_of(std::string& frame) {
    Reader reader(std::string_view(frame).substr(sizeof(uint32_t)));
    reader.u8();
    return reader;
  }
  Meet ask(const std::string& topic, uint64_t id, Purpose purpose = Purpose::rendezvous) const {
    Meet message;
    message.id = id;
    message.purpose = purpose;
    message.topic = topic;
    return message;
  }
  StateOptions options;
  std::vector<std::string> sent;
  const Send send = [this](uint32_t rank, const std::string& frame) {
    Reader reader(std::string_view(frame).substr(sizeof(uint32_t)));
    const auto kind = static_cast<FrameKind>(reader.u8());
    std::string line = std::to_string(rank) + " ";
    if (kind == FrameKind::reply) {
      const std::optional<Reply> reply = decode_reply(reader);
      line += reply->status.ok() ? "ok " + reply->value : reply->status.message();
    } else if (kind == FrameKind::warning) {
      line += reader.text();
    } else {
      line += std::to_string(static_cast<int>(kind));
    }
    sent.push_back(line);
  };
  std::optional<Members> members;
  std::optional<RendezvousTable> rendezvous_table;
};

TEST_F(Parts, WhoAsksForAKeyIsAnsweredWhenItIsPutOrItsTimeIsUp) {
  Store store(send);
  const auto get = [&](uint32_t rank, const std::string& key) {
    std::string frame = Writer(FrameKind::get).u64(1).text(key).u64(kSecondUs).frame();
    Reader reader = body_of(frame);
    store.get(rank, reader, 0);
  };
  get(0, "a");
  get(1, "b");
  EXPECT_TRUE(sent.empty());
  EXPECT_EQ(store.next_us(), kSecondUs);
  std::string frame = Writer(FrameKind::put).u64(2).text("a").text("value").frame();
  Reader reader = body_of(frame);
  store.put(2, reader);
  EXPECT_EQ(sent, (std::vector<std::string>{"0 ok value", "2 ok "}));
  get(2, "a");
  EXPECT_EQ(sent.back(), "2 ok value");
  store.tick(kSecondUs);
  EXPECT_EQ(sent.back(), "1 key 'b': no rank has put it within 1.0 s");
  EXPECT_EQ(store.next_us(), kNever);
}

TEST_F(Parts, WhoHasLeftIsNotAnswered) {
  Store store(send);
  std::string frame = Writer(FrameKind::get).u64(1).text("a").u64(kSecondUs).frame();
  Reader reader = body_of(frame);
  store.get(0, reader, 0);
  store.leave(0);
  store.tick(kNever);
  EXPECT_TRUE(sent.empty());
}

TEST_F(Parts, ARankComesOnceAndAllHearOfTheLast) {
  members.emplace(options, send);
  ASSERT_TRUE(members->join(0, 0).ok());
  EXPECT_EQ(members->join(0, 0).message(), "control: rank 0 has already joined this run");
  EXPECT_EQ(members->join(3, 0).code(), Code::invalid_argument);
  members->begin_if_all_are_here(0);
  EXPECT_EQ(sent, std::vector<std::string>{"0 32"});
  ASSERT_TRUE(members->join(1, 0).ok());
  ASSERT_TRUE(members->join(2, 0).ok());
  sent.clear();
  members->begin_if_all_are_here(0);
  EXPECT_EQ(sent, (std::vector<std::string>{"0 34", "1 34", "2 34"}));
}

TEST_F(Parts, WhoHasNotComeInTimeEndsTheRun) {
  members.emplace(options, send);
  ASSERT_TRUE(members->join(1, 0).ok());
  EXPECT_TRUE(members->look_for_absent(59 * kSecondUs).ok());
  EXPECT_EQ(members->look_for_absent(60 * kSecondUs).message().substr(0, 29),
            "ranks 0 and 2 did not connect");
}

TEST_F(Parts, WhoIsSilentForLongerThanTheDeadlineIsNamed) {
  make();
  members->heard(0, 5 * kSecondUs);
  members->lives(2, 5 * kSecondUs);
  EXPECT_FALSE(members->silent(10 * kSecondUs).has_value());
  const auto silent = members->silent(11 * kSecondUs);
  ASSERT_TRUE(silent.has_value());
  EXPECT_EQ(silent->first, 1u);
  members->forgive(11 * kSecondUs);
  EXPECT_FALSE(members->silent(11 * kSecondUs).has_value());
}

TEST_F(Parts, ARendezvousIsAnsweredWhenTheLastRankHasCome) {
  make();
  rendezvous_table->meet(0, ask("topic", 1), 0);
  rendezvous_table->meet(2, ask("topic", 1), 0);
  EXPECT_TRUE(sent.empty());
  const auto& [key, rendezvous] = *rendezvous_table->all().begin();
  EXPECT_EQ(rendezvous_table->missing(key, rendezvous), std::vector<uint32_t>{1});
  rendezvous_table->meet(1, ask("topic", 1), 0);
  EXPECT_EQ(sent, (std::vector<std::string>{"0 ok ", "1 ok ", "2 ok "}));
  EXPECT_TRUE(rendezvous_table->all().empty());
}

TEST_F(Parts, WhoComesAfterAFailureHearsOfItToo) {
  make();
  Meet refusing = ask("topic", 1);
  refusing.refusal = "no plugin";
  rendezvous_table->meet(0, refusing, 0);
  rendezvous_table->meet(1, ask("topic", 1), 0);
  EXPECT_EQ(sent.size(), 2u);
  EXPECT_EQ(sent[1], "1 'topic': rank 0 cannot take part: no plugin");
  EXPECT_FALSE(rendezvous_table->all().empty());
  rendezvous_table->meet(2, ask("topic", 1), 0);
  EXPECT_TRUE(rendezvous_table->all().empty());
}

TEST_F(Parts, AStepThatALeftRankCannotMakeEndsTheRun) {
  make();
  Meet step = ask("step 4 of set 'model'", 1, Purpose::step);
  step.set = "model";
  step.step = 4;
  rendezvous_table->meet(0, step, 0);
  members->set(1, Members::Presence::left);
  EXPECT_TRUE(rendezvous_table->run_failure().ok());
  rendezvous_table->leave(1);
  EXPECT_EQ(rendezvous_table->run_failure().message().substr(0, 58),
            "rank 1 has left the run after 0 steps of set 'model'; othe");
}

TEST_F(Parts, PatienceWarnsByNameAndEndsWhatWaitsForTooLong) {
  options.warning_us = kSecondUs;
  options.busy_limit_us = 5 * kSecondUs;
  make();
  Patience patience(options, send, *members, *rendezvous_table);
  rendezvous_table->meet(0, ask("sum", 1, Purpose::operation), 0);
  EXPECT_EQ(patience.next_us(), kSecondUs);
  patience.poll(kSecondUs);
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_EQ(sent[0].substr(0, 66),
            "0 ranks 1 and 2 have not asked for 'sum' for 1.0 s, but other rank");
  patience.poll(5 * kSecondUs);
  EXPECT_EQ(sent.back().substr(0, 45), "0 ranks 1 and 2 did not come to 'sum' within ");
  EXPECT_TRUE(rendezvous_table->run_failure().ok());
}

TEST_F(Parts, RanksThatWaitForEachOtherAreLetGo) {
  options.circle_us = kSecondUs;
  options.size = 2;
  make();
  Patience patience(options, send, *members, *rendezvous_table);
  rendezvous_table->meet(0, ask("this", 1), 0);
  rendezvous_table->meet(1, ask("that", 1), 0);
  patience.poll(0);
  EXPECT_TRUE(sent.empty());
  EXPECT_EQ(patience.next_us(), kSecondUs);
  patience.poll(kSecondUs);
  ASSERT_EQ(sent.size(), 2u);
  EXPECT_NE(sent[0].find("ranks wait for each other"), std::string::npos);
}

}  // namespace
}  // namespace penstock::control::state_parts_test
