// Control among healthy ranks: store, rendezvous, named operations, warnings.
#include "core/control/control.hpp"

#include "core/control/testing.hpp"
#include "tests/support/worlds.hpp"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <random>

namespace penstock::control_test {
namespace {

using testing::contains;
using testing::kLongUs;
using testing::run_world;

class ControlWorld : public ::testing::TestWithParam<uint32_t> {};
INSTANTIATE_TEST_SUITE_P(Sizes, ControlWorld, test::worlds({1, 2, 3, 4, 8}));

TEST_P(ControlWorld, WhatOneRankPutsAllRanksGet) {
  run_world(GetParam(), [](Control& control) {
    const std::string key = "key" + std::to_string(control.rank());
    const std::string value("a\0b\n", 4);
    EXPECT_TRUE(control.put(key, value + key).ok());
    for (uint32_t rank = 0; rank < control.size(); ++rank) {
      const std::string other = "key" + std::to_string(rank);
      const Result<std::string> got = control.get(other, kLongUs);
      ASSERT_TRUE(got.ok()) << got.status().message();
      EXPECT_EQ(got.value(), value + other);
    }
  });
}

TEST_P(ControlWorld, GatherGivesAllTextsInRankOrderAndATopicMayBeUsedAgain) {
  run_world(GetParam(), [](Control& control) {
    for (int round = 0; round < 20; ++round) {
      const auto text = [&](uint32_t rank) { return fmt::format("{} of {}", round, rank); };
      const Result<std::vector<std::string>> texts =
          control.gather("round", text(control.rank()), {}, kLongUs);
      ASSERT_TRUE(texts.ok()) << texts.status().message();
      ASSERT_EQ(texts.value().size(), control.size());
      for (uint32_t rank = 0; rank < control.size(); ++rank)
        EXPECT_EQ(texts.value()[rank], text(rank));
    }
  });
}

TEST_P(ControlWorld, SubsetsMeetUnderTheSameTopicWithoutEachOther) {
  run_world(GetParam(), [](Control& control) {
    std::vector<uint32_t> mine;
    for (uint32_t rank = control.rank() % 2; rank < control.size(); rank += 2) mine.push_back(rank);
    const Result<std::vector<std::string>> texts =
        control.gather("half", std::to_string(control.rank()), mine, kLongUs);
    ASSERT_TRUE(texts.ok()) << texts.status().message();
    std::vector<std::string> expected;
    for (uint32_t rank : mine) expected.push_back(std::to_string(rank));
    EXPECT_EQ(texts.value(), expected);
  });
}

TEST_P(ControlWorld, RequestsInAnyOrderGetOneOrderOnAllRanks) {
  constexpr size_t kRequests = 50;
  std::mutex mutex;
  std::vector<std::vector<std::string>> orders(GetParam());
  run_world(GetParam(), [&](Control& control) {
    std::vector<std::string> names;
    for (size_t i = 0; i < kRequests; ++i) names.push_back("operation" + std::to_string(i));
    std::shuffle(names.begin(), names.end(), std::mt19937(control.rank()));
    std::promise<void> all;
    size_t answered = 0;
    for (const std::string& name : names) {
      control.request({name, {}, "same", name + " from " + std::to_string(control.rank())},
                      [&, name](Status status, OperationResponse response) {
                        EXPECT_TRUE(status.ok()) << status.message();
                        EXPECT_EQ(response.serial, answered);
                        ASSERT_EQ(response.details.size(), control.size());
                        for (uint32_t rank = 0; rank < control.size(); ++rank) {
                          EXPECT_EQ(response.details[rank], name + " from " + std::to_string(rank));
                        }
                        {
                          const std::lock_guard lock(mutex);
                          orders[control.rank()].push_back(name);
                        }
                        if (++answered == kRequests) all.set_value();
                      });
    }
    all.get_future().wait();
  });
  for (const std::vector<std::string>& order : orders) EXPECT_EQ(order, orders[0]);
}

TEST_P(ControlWorld, ALongTextArrivesWhole) {
  // Longer than the buffer of a socket. The answer has the texts of all ranks for each rank, so
  // with more ranks the texts are shorter.
  const size_t length = GetParam() <= 2 ? 3'000'001 : 800'001;
  run_world(GetParam(), [&](Control& control) {
    const std::string text(length, static_cast<char>('a' + control.rank()));
    const Result<std::vector<std::string>> texts = control.gather("long", text, {}, kLongUs);
    ASSERT_TRUE(texts.ok()) << texts.status().message();
    EXPECT_EQ(texts.value()[control.rank()], text);
    EXPECT_EQ(texts.value().back(),
              std::string(length, static_cast<char>('a' + control.size() - 1)));
  });
}

TEST_P(ControlWorld, TheTableForPluginsReachesTheSameStore) {
  run_world(GetParam(), [](Control& control) {
    const penstock_key_value_store* store = control.store();
    if (control.rank() == 0) {
      EXPECT_EQ(store->put(store->context, str("port"), str("1234")), nullptr);
    }
    std::string value;
    const auto sink = [](void* context, penstock_str text) {
      static_cast<std::string*>(context)->assign(view(text));
    };
    EXPECT_EQ(store->get(store->context, str("port"), kLongUs, &value, sink), nullptr);
    EXPECT_EQ(value, "1234");
    const Status missing = from_c(store->get(store->context, str("other"), 1, &value, sink));
    EXPECT_EQ(missing.code(), Code::deadline_exceeded);
  });
}

TEST_P(ControlWorld, AgreementOnEqualTextsSucceeds) {
  run_world(GetParam(), [](Control& control) {
    const Status status = control.agree("config", "a = 1\nb = 2\n", {}, kLongUs);
    EXPECT_TRUE(status.ok()) << status.message();
  });
}

TEST(Control, DisagreementIsToldToEveryRankWithLineVersionsAndRanks) {
  run_world(4, [](Control& control) {
    const std::string mine = control.rank() == 2 ? "a = 1\nb = 3\n" : "a = 1\nb = 2\n";
    const Status status = control.agree("config", mine, {}, kLongUs);
    EXPECT_EQ(status.code(), Code::mismatch);
    EXPECT_EQ(status.message(),
              "'config' must be equal on its ranks but differs in line 2: ranks 0, 1 and 3 have "
              "\"b = 2\"; rank 2 has "
              "\"b = 3\"");
  });
}

TEST(Control, AGetOfAKeyNobodyPutsNamesTheKey) {
  run_world(2, [](Control& control) {
    const Result<std::string> got = control.get("nowhere", 30'000);
    EXPECT_EQ(got.status().code(), Code::deadline_exceeded);
    EXPECT_TRUE(contains(got.status().message(), "'nowhere'")) << got.status().message();
  });
}

TEST(Control, AGatherWithoutOneRankNamesItAndTheLateRankIsToldAtOnce) {
  run_world(3, [](Control& control) {
    const auto named = [](const Status& status) {
      EXPECT_EQ(status.code(), Code::deadline_exceeded);
      EXPECT_TRUE(contains(status.message(), "rank 1 did not come to 'plan'")) << status.message();
    };
    if (control.rank() != 1) named(control.gather("plan", "x", {}, 2'000'000).status());
    EXPECT_TRUE(control.agree("waited", "", {}, kLongUs).ok());
    if (control.rank() == 1) named(control.gather("plan", "x", {}, kLongUs).status());
    EXPECT_TRUE(control.agree("told", "", {}, kLongUs).ok());
    // All ranks know of the failure, so the topic is free again.
    EXPECT_TRUE(control.gather("plan", "x", {}, kLongUs).ok());
  });
}

TEST(Control, RequestsThatDifferFailOnEveryRankAndTheNameIsFreeAgain) {
  run_world(3, [](Control& control) {
    const auto ask = [&](const std::string& signature) {
      std::promise<Status> answer;
      control.request({"allreduce.x", {}, signature, ""}, [&](Status status, OperationResponse) {
        answer.set_value(std::move(status));
      });
      return answer.get_future().get();
    };
    const Status status =
        ask(control.rank() == 0 ? "dtype float32\nshape [4]" : "dtype float32\nshape [5]");
    EXPECT_EQ(status.code(), Code::mismatch);
    EXPECT_TRUE(
        contains(status.message(), "rank 0 has \"shape [4]\"; ranks 1 and 2 have \"shape [5]\""))
        << status.message();
    EXPECT_TRUE(ask("equal").ok());
  });
}

TEST(Control, ASecondRequestOfAPendingNameIsRefused) {
  run_world(2, [](Control& control) {
    std::promise<Status> first;
    std::promise<Status> second;
    if (control.rank() == 0) {
      control.request({"x", {}, "", ""},
                      [&](Status status, OperationResponse) { first.set_value(status); });
      control.request({"x", {}, "", ""},
                      [&](Status status, OperationResponse) { second.set_value(status); });
      EXPECT_EQ(second.get_future().get().code(), Code::invalid_argument);
    }
    EXPECT_TRUE(control.agree("asked", "", {}, kLongUs).ok());
    if (control.rank() == 1) {
      control.request({"x", {}, "", ""},
                      [&](Status status, OperationResponse) { first.set_value(status); });
    }
    EXPECT_TRUE(first.get_future().get().ok());
  });
}

TEST(Control, EachRequestHasANumberOfItsOwnThatItsMembersAgreeOn) {
  run_world(3, [](Control& control) {
    const auto ask = [&](const std::string& name, std::vector<uint32_t> ranks) {
      std::promise<OperationResponse> answer;
      control.request({name, std::move(ranks), "", ""},
                      [&](Status status, OperationResponse response) {
                        EXPECT_TRUE(status.ok()) << status.message();
                        answer.set_value(std::move(response));
                      });
      return answer.get_future().get();
    };
    EXPECT_EQ(ask("x", {}).serial, 0u);
    if (control.rank() != 1) {
      EXPECT_EQ(ask("x", {0, 2}).serial, 1u);
    }
    EXPECT_EQ(ask("y", {}).serial, 2u);
    EXPECT_EQ(ask("z", {0, 1, 2}).serial, 3u);
  });
}

TEST(Control, AllHearTheFirst) {
  run_world(3, [](Control& control) {
    const auto all = control.hear_first("x", "of " + std::to_string(control.rank()), {}, kLongUs);
    ASSERT_TRUE(all.ok()) << all.status().message();
    EXPECT_EQ(all.value(), "of 0");
    if (control.rank() == 0) return;
    const auto some =
        control.hear_first("y", "of " + std::to_string(control.rank()), {1, 2}, kLongUs);
    ASSERT_TRUE(some.ok()) << some.status().message();
    EXPECT_EQ(some.value(), "of 1");
  });
}

// If each rank received every rank's text, the traffic would be 64 times as large.
TEST(Control, HearingTheFirstCostsItsTextOnceForEachRank) {
  const std::string text(10'000, 'x');
  const auto hear = [&](Control& control) {
    const std::string mine = control.rank() == 0 ? text : std::string();
    ASSERT_TRUE(control.agree("before", "", {}, kLongUs).ok());
    const uint64_t before = control.served_bytes();
    ASSERT_TRUE(control.hear_first("x", mine, {}, kLongUs).ok());
    ASSERT_TRUE(control.agree("after", "", {}, kLongUs).ok());
    const uint64_t took = control.served_bytes() - before;
    EXPECT_GE(took, control.rank() == 0 ? 9 * text.size() : 0);
    EXPECT_LE(took, control.rank() == 0 ? 10 * text.size() : 0);
  };
  // Heartbeats are counted too, so few of them.
  run_world(8, hear, [](Control::Options& options) { options.heartbeat_us = 2'000'000; });
}

TEST(Control, RanksThatMakeNoSenseAreRefused) {
  run_world(2, [](Control& control) {
    for (const std::vector<uint32_t>& ranks :
         {std::vector<uint32_t>{1 - control.rank()}, {1, 0}, {0, 0}, {0, 1, 2}}) {
      EXPECT_EQ(control.gather("x", "", ranks, kLongUs).status().code(), Code::invalid_argument);
    }
  });
}

TEST(Control, ARequestThatOneRankDoesNotMakeIsWarnedOfWithWhatItLastDid) {
  std::promise<std::string> warning;
  std::atomic<int> warnings = 0;
  run_world(
      3,
      [&](Control& control) {
        control.note("step 7 of rank " + std::to_string(control.rank()));
        EXPECT_TRUE(control.agree("noted", "", {}, kLongUs).ok());
        std::promise<Status> answer;
        const auto ask = [&] {
          control.request({"allreduce.x", {}, "", ""}, [&](Status status, OperationResponse) {
            answer.set_value(std::move(status));
          });
        };
        if (control.rank() == 2) {
          const std::string text = warning.get_future().get();
          EXPECT_TRUE(contains(text, "rank 2 has not asked for 'allreduce.x' for ")) << text;
          EXPECT_TRUE(contains(text, "rank 2: it last did: step 7 of rank 2")) << text;
        }
        ask();
        EXPECT_TRUE(answer.get_future().get().ok());
      },
      [&](Control::Options& options) {
        options.warning_us = 50'000;
        options.on_warning = [&, rank = options.rank](std::string text) {
          EXPECT_EQ(rank, 0u);
          // In earlier warnings rank 1 may be missing too.
          if (contains(text, "rank 2 has not asked") && warnings++ == 0)
            warning.set_value(std::move(text));
        };
      });
  EXPECT_GE(warnings, 1);
}

TEST(Control, ARequestWithADeadlineFailsWithTheMissingRank) {
  run_world(
      2,
      [](Control& control) {
        if (control.rank() == 0) {
          std::promise<Status> answer;
          control.request({"x", {}, "", ""},
                          [&](Status status, OperationResponse) { answer.set_value(status); });
          const Status status = answer.get_future().get();
          EXPECT_EQ(status.code(), Code::deadline_exceeded);
          EXPECT_TRUE(contains(status.message(), "rank 1 did not come to 'x'")) << status.message();
        }
        EXPECT_TRUE(control.agree("end", "", {}, kLongUs).ok());
      },
      [](Control::Options& options) { options.busy_limit_us = 50'000; });
}

TEST_P(ControlWorld, AnAbortReachesEveryRankOnceAndEndsAllWaits) {
  std::vector<std::atomic<int>> announced(GetParam());
  const uint32_t culprit = GetParam() - 1;
  run_world(
      GetParam(),
      [&](Control& control) {
        std::promise<Status> pending;
        control.request(
            {"x", {}, std::to_string(control.rank()), ""},
            [&](Status status, OperationResponse) { pending.set_value(std::move(status)); });
        (void)pending.get_future().get();  // MISMATCH, or success in a world of one
        if (control.rank() == culprit) control.abort(internal("the disk is full"));
        const Status waited = control.get("never", kLongUs).status();
        EXPECT_TRUE(contains(waited.message(), "the disk is full")) << waited.message();
        if (control.rank() != culprit) {
          EXPECT_EQ(waited.code(), Code::peer_failed);
          EXPECT_TRUE(contains(waited.message(), "rank " + std::to_string(culprit)))
              << waited.message();
        }
        EXPECT_TRUE(control.aborted());
        control.abort(internal("again"));
        EXPECT_EQ(control.put("late", "").code(), waited.code());
        std::promise<Status> refused;
        control.request({"y", {}, "", ""},
                        [&](Status status, OperationResponse) { refused.set_value(status); });
        EXPECT_EQ(refused.get_future().get().message(), control.abort_reason().message());
      },
      [&](Control::Options& options) {
        options.on_abort = [&, rank = options.rank](Status reason) {
          EXPECT_TRUE(contains(reason.message(), "the disk is full")) << reason.message();
          ++announced[rank];
        };
      });
  for (const std::atomic<int>& count : announced) EXPECT_EQ(count, 1);
}

}  // namespace
}  // namespace penstock::control_test
