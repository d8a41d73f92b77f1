// The error of a rank if the run is given up while the rank computes: one error, with its own code,
// once.
#include "core/set/testing.hpp"

#include <filesystem>
#include <functional>

namespace penstock::failure_test {
namespace {

using testing::make_set;
using testing::run_step;
using testing::scheme_text;
using testing::view_of;
using testing::with_ranks;

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

size_t count(std::string_view text, std::string_view part) {
  size_t found = 0;
  for (size_t at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++found;
  return found;
}

void wait_for_the_end(Runtime& runtime) {
  while (runtime.state().ok()) std::this_thread::yield();
}

TEST(Failure, BeforeTheWaitKeepsItsCodeUntilItWasDelivered) {
  with_ranks(2, scheme_text("scheduler = \"wfbp\""), [](Runtime& runtime, uint32_t rank) {
    auto set = make_set(runtime, {{"a", {8}}});
    ASSERT_TRUE(set.ok()) << set.status().message();
    std::vector<float> values(8, 1.0f);
    if (rank == 1) return runtime.give_up(aborted("the disk is full"));
    wait_for_the_end(runtime);
    // The sets learn of the failure a moment after the watch thread.
    Status first;
    while (first.ok()) {
      std::vector<std::vector<float>> gradients{values};
      first = run_step(**set, gradients);
    }
    EXPECT_EQ(first.code(), Code::peer_failed);
    EXPECT_TRUE(contains(first.message(), "the disk is full")) << first.message();
    const Status later = (*set)->gradient_ready(0, view_of(values));
    EXPECT_EQ(later.code(), Code::failed_precondition);
    EXPECT_TRUE(contains(later.message(), "is torn")) << later.message();
  });
}

TEST(Failure, IsLoggedOnceWhateverTheNumberOfBuckets) {
  ::testing::internal::CaptureStderr();
  with_ranks(2, scheme_text("scheduler = \"wfbp\""), [](Runtime& runtime, uint32_t rank) {
    std::vector<testing::GradientShape> shapes;
    std::vector<std::vector<float>> values(20, std::vector<float>(8));
    for (size_t i = 0; i < values.size(); ++i) shapes.push_back({fmt::format("g{}", i), {8}});
    auto set = make_set(runtime, shapes);
    ASSERT_TRUE(set.ok()) << set.status().message();
    if (rank == 1) return runtime.give_up(aborted("the disk is full"));
    EXPECT_FALSE(run_step(**set, values).ok());
  });
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(count(log, "error [0/2] runtime"), 1u) << log;
  EXPECT_EQ(count(log, "error [1/2] runtime: the disk is full"), 1u) << log;
}

// Opens one rank per scheme. `body` receives the result of opening.
void open_each(const std::vector<std::string>& schemes, const std::string& hub,
               const std::function<void(Result<RuntimeHandle>& runtime, uint32_t rank)>& body) {
  std::vector<std::thread> threads;
  const auto size = static_cast<uint32_t>(schemes.size());
  for (uint32_t rank = 0; rank < size; ++rank)
    threads.emplace_back([&, rank] {
      auto runtime = testing::open_rank(testing::rank_config(schemes[rank], hub, rank, size));
      body(runtime, rank);
    });
  for (std::thread& thread : threads) thread.join();
}

TEST(Failure, OfLoadingOnOneRankIsToldToAllByNumberAndSentence) {
  const std::string good = scheme_text("scheduler = \"wfbp\"");
  const std::string bad = scheme_text("scheduler = \"wfbp\"\ncompressor = \"topkk\"");
  const uint64_t begin_us = now_us();
  open_each({good, good, bad}, "loading", [](Result<RuntimeHandle>& runtime, uint32_t rank) {
    ASSERT_FALSE(runtime.ok());
    const std::string_view text = runtime.status().message();
    EXPECT_TRUE(contains(text, "topkk")) << text;
    EXPECT_EQ(contains(text, "the run cannot start: rank 2: "), rank != 2) << text;
    EXPECT_EQ(runtime.status().code() == Code::peer_failed, rank != 2);
  });
  EXPECT_LT(now_us() - begin_us, 10'000'000u);
}

TEST(Failure, OfASetOnOneRankIsToldToAll) {
  const std::string good = scheme_text("scheduler = \"wfbp\"");
  const uint64_t begin_us = now_us();
  open_each({good, good}, "one set", [](Result<RuntimeHandle>& runtime, uint32_t rank) {
    ASSERT_OK(runtime.status());
    std::vector<testing::GradientShape> shapes{{"a", {8}}, {rank == 1 ? "a" : "b", {8}}};
    const auto set = make_set(**runtime, shapes);
    ASSERT_FALSE(set.ok());
    EXPECT_TRUE(contains(set.status().message(), "two gradients of set 'model' are named 'a'"))
        << set.status().message();
    EXPECT_EQ(contains(set.status().message(), "rank 1 cannot take part"), rank == 0);
    // The other sets are not torn: another set can be made.
    ASSERT_OK(make_set(**runtime, {{"a", {8}}}, 0, "another").status());
  });
  EXPECT_LT(now_us() - begin_us, 10'000'000u);
}

TEST(Failure, OfAPluginCallThatNeverReturnsIsNamedAndHoldsNothingBack) {
  const std::string program = std::filesystem::canonical("/proc/self/exe").parent_path().string();
  const std::string scheme = fmt::format(
      "[scheme]\ncollective = \"loopback\"\nscheduler = \"fusion\"\ncompressor = \"identity-c\"\n"
      "memory = \"none\"\n[runtime]\nallow_insecure_paths = true\n"
      "plugin_path = [\"{}/plugins/hangs\"]\ndeadline_s = 10\nheartbeat_s = 0.1\n"
      "stall_warning_s = 0.3\nbusy_limit_s = ",
      program);
  const uint64_t begin_us = now_us();
  ::testing::internal::CaptureStderr();
  // Only the rank whose call hangs has a short limit, so rank 0 never ends first.
  open_each({scheme + "20\n", scheme + "2\n"}, "hangs", [](auto& runtime, uint32_t rank) {
    ASSERT_OK(runtime.status());
    auto set = make_set(**runtime, {{"a", {8}}, {"b", {8}}});
    ASSERT_OK(set.status());
    std::vector<std::vector<float>> gradients(2, std::vector<float>(8, 1.0f));
    Status status;
    for (int step = 0; step < 3 && status.ok(); ++step) status = run_step(**set, gradients);
    // The transport or the store may be the first to tell the other rank.
    const char* expected =
        rank == 0 ? "rank 1"
                  : "encode of compressor 'identity-c' for bucket 0 of set 'model', step 2";
    EXPECT_TRUE(contains(status.message(), expected)) << status.message();
    EXPECT_FALSE(contains(status.message(), "did not come")) << status.message();
  });
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_TRUE(contains(log, "warning [1/2] runtime: encode of compressor 'identity-c'")) << log;
  EXPECT_TRUE(contains(log, "is abandoned, not freed: encode of compressor")) << log;
  // The limit, plus the time to close the run.
  EXPECT_LT(now_us() - begin_us, 2'000'000u + 10'000'000u);
}

TEST(Failure, OfATransportsConstructorThatNeverReturnsIsNamedAndHoldsNothingBack) {
  const std::string scheme = "[scheme]\ncollective = \"stuck\"\n[runtime]\n" +
                             testing::test_plugins({"stuck_transport"}) +
                             "stall_warning_s = 0.3\nbusy_limit_s = 1\n";
  ::testing::internal::CaptureStderr();
  const Status status = testing::open_rank(scheme).status();
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(status.code(), Code::deadline_exceeded) << status.message();
  EXPECT_TRUE(status.message().starts_with(
      "create of collective 'stuck' has not returned for 0.9 s: the plugin hangs"))
      << status.message();
  EXPECT_TRUE(contains(log, "create of collective 'stuck' has not returned for 0.3 s")) << log;
}

// The making of a set, while `label` makes rank 1's call take twice the limit. `call` is the call's
// name in the error.
void expect_named_on_every_rank(const std::string& label, const std::string& call) {
  const std::string program = std::filesystem::canonical("/proc/self/exe").parent_path().string();
  const auto scheme = [&](const std::string& own, int limit_s) {
    return fmt::format(
        "[scheme]\ncollective = \"loopback\"\nscheduler = \"fusion\"\n"
        "compressor = \"identity-c\"\nmemory = \"none\"\n"
        "[compressor.identity-c]\nlabel = \"{}\"\n[runtime]\nallow_insecure_paths = true\n"
        "plugin_path = [\"{}/plugins/late\"]\ndeadline_s = 10\nheartbeat_s = 0.1\n"
        "stall_warning_s = 0.3\nbusy_limit_s = {}\n",
        own, program, limit_s);
  };
  ::testing::internal::CaptureStderr();
  // Only the rank whose call is late has a short limit, so rank 0 never ends first.
  open_each({scheme("prompt", 20), scheme(label, 2)}, "late",
            [&](Result<RuntimeHandle>& runtime, uint32_t) {
              ASSERT_OK(runtime.status());
              const auto set = make_set(**runtime, {{"a", {8}}});
              ASSERT_FALSE(set.ok());
              EXPECT_TRUE(contains(set.status().message(), call + " has not returned for "))
                  << set.status().message();
            });
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_TRUE(contains(log, "warning [1/2] runtime: " + call)) << log;
}

TEST(Failure, OfAPlanThatDoesNotReturnIsNamedOnEveryRank) {
  expect_named_on_every_rank("mute",
                             "plan of compressor 'identity-c' for a of set 'model', step 0");
}

TEST(Failure, OfAConstructorThatDoesNotReturnIsNamedOnEveryRank) {
  expect_named_on_every_rank("late", "create of compressor 'identity-c' of set 'model', step 0");
}

TEST(Failure, OfALongEvaluationOnOneRankIsNone) {
  const std::string scheme =
      "[scheme]\ncollective = \"loopback\"\nscheduler = \"wfbp\"\n[runtime]\ndeadline_s = 1\n"
      "heartbeat_s = 0.1\nstall_warning_s = 0.5\n";
  ::testing::internal::CaptureStderr();
  open_each({scheme, scheme}, "busy", [](Result<RuntimeHandle>& runtime, uint32_t rank) {
    ASSERT_OK(runtime.status());
    auto set = make_set(**runtime, {{"a", {8}}});
    ASSERT_OK(set.status());
    std::vector<std::vector<float>> gradients{std::vector<float>(8, 1.0f)};
    ASSERT_OK(run_step(**set, gradients));
    // Twice the deadline: the rank is alive and busy.
    if (rank == 1) std::this_thread::sleep_for(std::chrono::seconds(2));
    ASSERT_OK(run_step(**set, gradients));
  });
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_TRUE(contains(log, "rank 0 has waited")) << log;
  EXPECT_TRUE(contains(log,
                       "for step 1 of set 'model', which rank 1 has not reached; rank 1: it "
                       "last did: end of step 0 of set 'model'"))
      << log;
}

}  // namespace
}  // namespace penstock::failure_test
