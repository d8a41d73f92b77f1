// The parts of Control without sockets: frames, the comparison of texts, and the state of the
// server with damaged frames.
#include "core/control/state.hpp"

#include <gtest/gtest.h>

#include <random>

namespace penstock::control::state_test {
namespace {

std::string body_of(const std::string& frame) {
  return frame.substr(sizeof(uint32_t));
}

TEST(ControlProtocol, FramesCutAnywhereComeOutWhole) {
  const std::string first = Writer(FrameKind::beat).text("one").frame();
  const std::string second =
      Writer(FrameKind::put).u64(7).text("k").text(std::string(5000, 'v')).frame();
  const std::string stream = first + second + first;
  for (size_t step : {1, 2, 3, 7, 4096, 100'000}) {
    FrameBuffer buffer(kMaxFrameBytes);
    std::vector<std::string> bodies;
    for (size_t begin = 0; begin < stream.size(); begin += step) {
      buffer.append(std::string_view(stream).substr(begin, step));
      while (true) {
        Result<std::optional<std::string>> body = buffer.next();
        ASSERT_TRUE(body.ok());
        if (!body->has_value()) break;
        bodies.push_back(**body);
      }
    }
    EXPECT_EQ(bodies, (std::vector<std::string>{body_of(first), body_of(second), body_of(first)}));
  }
}

TEST(ControlProtocol, AFrameAboveTheLimitOrEmptyIsRefused) {
  for (const std::string& bytes :
       {std::string("\x00\x00\x00\x00", 4), std::string("\x01\x01\x00\x00", 4)}) {
    FrameBuffer buffer(256);
    buffer.append(bytes);
    EXPECT_EQ(buffer.next().status().code(), Code::invalid_payload);
  }
}

TEST(ControlProtocol, AReaderNeverPassesItsEnd) {
  const std::string body =
      body_of(encode(Meet{1, Purpose::operation, "topic", {0, 1, 2}, "signature", "detail", 5}));
  for (size_t size = 0; size < body.size(); ++size) {
    Reader reader(std::string_view(body).substr(0, size));
    reader.u8();
    EXPECT_FALSE(decode_meet(reader).has_value()) << size;
  }
  Reader reader(body);
  reader.u8();
  const std::optional<Meet> meet = decode_meet(reader);
  ASSERT_TRUE(meet.has_value());
  EXPECT_EQ(meet->topic, "topic");
  EXPECT_EQ(meet->ranks, (std::vector<uint32_t>{0, 1, 2}));
  EXPECT_EQ(meet->detail, "detail");
}

TEST(ControlProtocol, ComparisonFindsTheFirstLineThatDiffers) {
  EXPECT_TRUE(compare("x", {{0, "a\nb"}, {1, "a\nb"}}).ok());
  EXPECT_EQ(compare("x", {{0, "a\nb"}, {1, "a"}}).message(),
            "'x' must be equal on its ranks but differs in line 2: rank 0 has \"b\"; rank 1 has no "
            "such line");
  EXPECT_EQ(compare("x", {{0, ""}, {3, "a\n\nc"}, {5, ""}}).message(),
            "'x' must be equal on its ranks but differs in line 1: ranks 0 and 5 have no such "
            "line; rank 3 has \"a\"");
  EXPECT_EQ(compare("x", {{0, "a\n"}, {1, "a"}}).code(), Code::mismatch);
  EXPECT_EQ(compare("x", {{0, "0"}, {1, "1"}, {2, "2"}, {3, "3"}, {4, "4"}, {5, "5"}}).message(),
            "'x' must be equal on its ranks but differs in line 1: rank 0 has \"0\"; rank 1 has "
            "\"1\"; rank 2 has "
            "\"2\"; rank 3 has \"3\"; and 2 more versions");
}

TEST(ControlProtocol, AnExcerptDoesNotCutACharacter) {
  const std::string text(199, 'a');
  EXPECT_EQ(excerpt(text + "\u00e9\u00e9"), text + "...");
  EXPECT_EQ(excerpt("one\ntwo"), "one");
}

State make_state(uint32_t size) {
  State state({size, 1000, 100, 500, 0}, [](uint32_t, std::string) {});
  for (uint32_t rank = 0; rank < size; ++rank) EXPECT_TRUE(state.join(rank, 0).ok());
  return state;
}

TEST(ControlState, ThousandsOfRendezvousThatWaitTakeAFewLines) {
  std::vector<std::string> warnings;
  State state({2, 1'000'000, 100, 500, 0}, [&](uint32_t, std::string frame) {
    Reader reader(std::string_view(frame).substr(sizeof(uint32_t)));
    if (static_cast<FrameKind>(reader.u8()) == FrameKind::warning)
      warnings.emplace_back(reader.text());
  });
  for (uint32_t rank = 0; rank < 2; ++rank) ASSERT_TRUE(state.join(rank, 0).ok());
  for (uint64_t id = 1; id <= 20'000; ++id) {
    const Meet meet{id, Purpose::rendezvous, std::to_string(id), {0, 1}, "", "", 0};
    ASSERT_TRUE(state.receive(1, body_of(encode(meet)), 1).ok());
  }
  state.tick(600);
  EXPECT_EQ(warnings.size(), 20u);
  warnings.clear();
  state.tick(1200);
  ASSERT_EQ(warnings.size(), 21u);
  EXPECT_EQ(warnings.front(), "19980 more rendezvous of ranks also wait");
}

// Each answer to a rank has the number of answers that follow at once. Answers for a set have none.
TEST(ControlState, AnswersToOperationsCountThoseThatFollow) {
  std::vector<Reply> heard;
  State state({2, 1000, 100, 500, 0}, [&](uint32_t rank, std::string frame) {
    Reader reader(std::string_view(frame).substr(sizeof(uint32_t)));
    if (rank == 1 && static_cast<FrameKind>(reader.u8()) == FrameKind::reply)
      heard.push_back(*decode_reply(reader));
  });
  for (uint32_t rank = 0; rank < 2; ++rank) ASSERT_TRUE(state.join(rank, 0).ok());
  for (uint32_t rank = 0; rank < 2; ++rank)
    for (uint64_t id = 1; id <= 4; ++id) {
      Meet meet{id, Purpose::operation, std::to_string(id), {0, 1}, "", "", 0};
      if (id == 2 || id == 4) meet.set = "model";
      ASSERT_TRUE(state.receive(rank, body_of(encode(meet)), 1).ok());
    }
  EXPECT_TRUE(heard.empty());
  state.tick(2);
  ASSERT_EQ(heard.size(), 4u);
  for (uint64_t i = 0; i < 4; ++i) EXPECT_EQ(heard[i].serial, i);
  EXPECT_EQ(heard[0].left, 1u);
  EXPECT_EQ(heard[1].left, 0u);
  EXPECT_EQ(heard[2].left, 0u);
  EXPECT_EQ(heard[3].left, 0u);
}

// The reason of an abort in the message to the other ranks.
std::string abort_of(State& state, std::string& heard, uint32_t rank, const std::string& reason) {
  EXPECT_TRUE(state.receive(rank, body_of(Writer(FrameKind::abort).text(reason).frame()), 1).ok());
  return heard;
}

TEST(ControlState, WhoGaveUpIsSaidOnce) {
  for (const auto& [reason, expected] :
       {std::pair("rank 1 gave the run up: loss is infinite",
                  "rank 1 gave the run up: loss is infinite"),
        std::pair("rank 1 ended with ValueError: no", "rank 1 ended with ValueError: no"),
        std::pair("rank 10 has left the run", "rank 1 gave up: rank 10 has left the run"),
        std::pair("loss is infinite", "rank 1 gave up: loss is infinite")}) {
    std::string heard;
    State state({2, 1000, 100, 500, 0}, [&](uint32_t, std::string frame) {
      const std::string body = body_of(frame);
      Reader reader(body);
      if (static_cast<FrameKind>(reader.u8()) != FrameKind::aborted) return;
      reader.u32();
      heard = reader.text();
    });
    for (uint32_t rank = 0; rank < 2; ++rank) ASSERT_TRUE(state.join(rank, 0).ok());
    EXPECT_EQ(abort_of(state, heard, 1, reason), expected);
  }
  EXPECT_EQ(told_by(1, "gave the run up", "rank 1 ended with ValueError: no"),
            "rank 1 ended with ValueError: no");
  EXPECT_EQ(told_by(1, "gave the run up", "no"), "rank 1 gave the run up: no");
}

// Heartbeats come at intervals, so the last heartbeat may be old when its rank dies.
TEST(ControlState, WhatARankLastDidIsToldWithItsAge) {
  const uint64_t second = 1'000'000;
  for (const auto& [age_us, expected] :
       {std::pair(second / 2, "rank 1 failed: killed; it last did: end of step 7"),
        std::pair(
            4 * second,
            "rank 1 failed: killed; it last did: end of step 7 (it reported this 4.0 s ago)")}) {
    std::string heard;
    State state({2, 60 * second, second, 0, 0}, [&](uint32_t rank, std::string frame) {
      const std::string body = body_of(frame);
      Reader reader(body);
      if (rank != 0 || static_cast<FrameKind>(reader.u8()) != FrameKind::aborted) return;
      reader.u32();
      heard = reader.text();
    });
    for (uint32_t rank = 0; rank < 2; ++rank) ASSERT_TRUE(state.join(rank, 0).ok());
    ASSERT_TRUE(state.receive(1, body_of(encode(Beat{"end of step 7", {}})), second).ok());
    state.lost(1, "killed", second + age_us);
    EXPECT_EQ(heard, expected);
  }
  EXPECT_EQ(last_did("", 0, 50 * second), "it last did: nothing that it reported");
}

TEST(ControlState, DamagedFramesAreRefusedAndNeverCrash) {
  const std::vector<std::string> seeds = {
      body_of(Writer(FrameKind::beat).text("note").frame()),
      body_of(Writer(FrameKind::put).u64(1).text("key").text("value").frame()),
      body_of(Writer(FrameKind::get).u64(2).text("key").u64(100).frame()),
      body_of(encode(Meet{3, Purpose::operation, "x", {0, 1, 2}, "s", "d", 100})),
      body_of(Writer(FrameKind::abort).text("reason").frame()),
  };
  std::mt19937 random(11);
  uint64_t refused = 0;
  for (int run = 0; run < 200; ++run) {
    State state = make_state(3);
    for (uint64_t now = 1; now < 100; ++now) {
      std::string body = seeds[random() % seeds.size()];
      for (uint64_t changes = random() % 3; changes > 0; --changes)
        body[random() % body.size()] = static_cast<char>(random());
      if (random() % 4 == 0) body.resize(random() % (body.size() + 1));
      refused += state.receive(random() % 3, body, now).ok() ? 0 : 1;
      state.tick(now);
    }
  }
  EXPECT_GT(refused, 1000u);
}

TEST(ControlState, AListOfRanksLongerThanTheFrameIsRefusedBeforeItIsStored) {
  State state = make_state(2);
  const std::string body =
      body_of(Writer(FrameKind::meet).u64(1).u32(0).text("x").u64(UINT64_MAX / 8).frame());
  EXPECT_EQ(state.receive(0, body, 1).code(), Code::invalid_payload);
}

TEST(ControlState, AfterAnAbortNobodyIsAnsweredWithSomethingElse) {
  std::vector<FrameKind> sent;
  State state({2, 1000, 100, 500, 0}, [&](uint32_t rank, std::string frame) {
    if (rank == 1) sent.push_back(static_cast<FrameKind>(frame[sizeof(uint32_t)]));
  });
  EXPECT_TRUE(state.join(0, 0).ok());
  EXPECT_TRUE(state.join(1, 0).ok());
  EXPECT_TRUE(state.receive(0, body_of(Writer(FrameKind::abort).text("reason").frame()), 1).ok());
  EXPECT_TRUE(state.receive(0, body_of(Writer(FrameKind::goodbye).frame()), 1).ok());
  EXPECT_TRUE(
      state.receive(1, body_of(encode(Meet{1, Purpose::rendezvous, "x", {0, 1}, "", "", 0})), 2)
          .ok());
  EXPECT_TRUE(state.receive(1, body_of(Writer(FrameKind::goodbye).frame()), 2).ok());
  EXPECT_EQ(sent, (std::vector<FrameKind>{FrameKind::welcome, FrameKind::ready, FrameKind::aborted,
                                          FrameKind::farewell}));
}

TEST(ControlState, SilenceOfTheServerItselfIsNotBlamedOnMembers) {
  State state = make_state(2);
  state.forgive(5000);
  state.tick(5500);
  EXPECT_FALSE(state.aborted());
  state.tick(6001);
  EXPECT_TRUE(state.aborted());
}

// The text of the frame if it has this kind.
std::string text_of(const std::string& frame, FrameKind kind) {
  const std::string body = body_of(frame);
  Reader reader(body);
  if (static_cast<FrameKind>(reader.u8()) != kind) return "";
  if (kind == FrameKind::aborted) reader.u32();
  return std::string(reader.text());
}

constexpr uint64_t kSecondUs = 1'000'000;

TEST(ControlState, ADatagramIsASignOfLifeAndNothingElse) {
  std::string reason;
  State state({2, 8 * kSecondUs, kSecondUs, 0, 0}, [&](uint32_t rank, const std::string& frame) {
    if (rank == 0) reason += text_of(frame, FrameKind::aborted);
  });
  state.lives(1, 0);  // it has no heartbeats yet, only its connection
  for (uint32_t rank = 0; rank < 2; ++rank) ASSERT_TRUE(state.join(rank, 0).ok());
  for (uint64_t now = 0; now <= 40 * kSecondUs; now += kSecondUs) {
    state.lives(0, now);
    if (now <= 20 * kSecondUs) state.lives(1, now);
    state.tick(now);
    EXPECT_EQ(state.aborted(), now > 28 * kSecondUs) << now;
  }
  EXPECT_TRUE(reason.starts_with("rank 1 failed: it has been silent for 9.0 s")) << reason;
  state.lives(1, 41 * kSecondUs);
  EXPECT_TRUE(state.aborted());
}

TEST(ControlState, ThatNoDatagramsGetThroughIsSaidOnceWithTheRanks) {
  std::string warnings;
  State state({4, 60 * kSecondUs, kSecondUs, 0, 0}, [&](uint32_t rank, const std::string& frame) {
    if (rank == 0) warnings += text_of(frame, FrameKind::warning);
  });
  for (uint32_t rank = 0; rank < 4; ++rank) ASSERT_TRUE(state.join(rank, 0).ok());
  for (uint64_t now = 0; now < 20 * kSecondUs; now += kSecondUs) {
    // No heartbeat of rank 1 arrives, and rank 2 receives none. Each rank reports this by its
    // connection.
    for (uint32_t rank = 0; rank < 4; ++rank) {
      if (rank != 1) state.lives(rank, now);
      const uint32_t hears = rank != 2 ? 1 : 0;
      ASSERT_TRUE(state.receive(rank, body_of(encode(Beat{"", {}, hears})), now).ok());
    }
    state.tick(now);
  }
  EXPECT_TRUE(warnings.starts_with("no UDP gets through between rank 0 and ranks 1 and 2, so"))
      << warnings;
  EXPECT_EQ(warnings.find("no UDP"), warnings.rfind("no UDP"));
}

TEST(ControlState, ARunOfOneRankHasNoNetworkThatCouldStopDatagrams) {
  std::string warnings;
  State state({1, 60 * kSecondUs, kSecondUs, 0, 0}, [&](uint32_t, const std::string& frame) {
    warnings += text_of(frame, FrameKind::warning);
  });
  ASSERT_TRUE(state.join(0, 0).ok());
  for (uint64_t now = 0; now < 20 * kSecondUs; now += kSecondUs) {
    ASSERT_TRUE(state.receive(0, body_of(encode(Beat{"", {}, 0})), now).ok());
    state.tick(now);
  }
  EXPECT_EQ(warnings, "");
}

// Rank 1 receives no heartbeats during the outage. After it, its delayed frames report this.
TEST(ControlState, AnOutageIsNotTakenForAFirewall) {
  std::string warnings;
  State state({2, 12 * kSecondUs, kSecondUs, 0, 0}, [&](uint32_t rank, const std::string& frame) {
    if (rank == 0) warnings += text_of(frame, FrameKind::warning);
  });
  for (uint32_t rank = 0; rank < 2; ++rank) ASSERT_TRUE(state.join(rank, 0).ok());
  for (uint64_t s = 0; s < 30; ++s) {
    const uint64_t now = s * kSecondUs;
    for (uint32_t rank = 0; rank < 2; ++rank) {
      if (rank == 1 && s >= 1 && s < 10) continue;
      state.lives(rank, now);
      const uint32_t hears = rank == 0 || s > 11 ? 1 : 0;
      ASSERT_TRUE(state.receive(rank, body_of(encode(Beat{"", {}, hears})), now).ok());
    }
    state.tick(now);
  }
  EXPECT_EQ(warnings, "");
}

// Rank 1 is unreachable for `away_s` seconds. Both ranks wait for messages of a step, which never
// come.
std::string end_after_an_outage(uint64_t away_s, uint64_t seconds) {
  std::string reason;
  State state({.size = 2, .deadline_us = 8 * kSecondUs, .pulse_us = kSecondUs},
              [&](uint32_t rank, const std::string& frame) {
                if (rank == 0) reason += text_of(frame, FrameKind::aborted);
              });
  for (uint32_t rank = 0; rank < 2; ++rank) EXPECT_TRUE(state.join(rank, 0).ok());
  for (uint64_t s = 0; s <= seconds; ++s) {
    const uint64_t now = s * kSecondUs;
    const auto wait = [&](uint32_t rank) {
      Meet meet{1, Purpose::step, "step 3 of set 'm'", {0, 1}, "", "", 0};
      meet.set = "m";
      meet.step = 3;
      EXPECT_TRUE(state.receive(rank, body_of(encode(meet)), now).ok());
    };
    state.lives(0, now);
    if (s <= 2 || s > 2 + away_s) state.lives(1, now);
    if (s == 3) wait(0);
    if (s == 5 + away_s) wait(1);  // its frame arrives after the outage
    state.tick(now);
  }
  return reason;
}

TEST(ControlState, AMessageHasTheLengthOfAnOutageAndADeadlineAfterItAndIsBlamedThen) {
  EXPECT_EQ(end_after_an_outage(6, 11 + 14), "");
  const std::string reason = end_after_an_outage(6, 11 + 15);
  EXPECT_TRUE(
      reason.starts_with("messages of step 3 of set 'm' did not come within 15.0 s although "
                         "every rank lives and waits for them: after 7.0 s of silence"))
      << reason;
  // Without an outage there is no limit, because there may be many messages.
  EXPECT_EQ(end_after_an_outage(0, 100), "");
}

}  // namespace
}  // namespace penstock::control::state_test
