// A run with a transport for each level.

#include "core/set/training_testing.hpp"

namespace penstock::transports_test {
namespace {

using testing::make_set;
using testing::open_rank;
using testing::Problem;
using testing::rank_config;
using testing::run_step;
using testing::scheme_text;
using testing::train;

constexpr char kHosts[] = "0,0,1,1";
const Problem kProblem({{"weight", {96, 100}}, {"bias", {33}}});

// Route hierarchical on two hosts of two ranks, with tables at its end.
std::string hierarchical(const std::string& tables) {
  return scheme_text(
             "scheduler = \"wfbp\"\nroute = \"hierarchical\"\ncompressor = \"efsign\"\n"
             "memory = \"residual\"\n") +
         tables + fmt::format("[collective.loopback]\nhosts = \"{}\"\n", kHosts);
}

// A second loopback with a latency.
std::string slow_loopback(const std::string& hosts, double latency_us) {
  return fmt::format(
      "[collective.slow]\nplugin = \"loopback\"\nhub = \"HUB-slow\"\nrank = RANK\nsize = SIZE\n"
      "hosts = \"{}\"\nlatency_us = {}\n",
      hosts, latency_us);
}

std::string transports(const std::string& keys) {
  return "[transport]\n" + keys + "\n";
}

TEST(Transports, ATransportPerLevelGivesTheSameBits) {
  const auto wanted = train(4, hierarchical(""), kProblem, 6);
  for (const char* keys :
       {"local = \"slow\"", "cross = \"slow\"", "local = \"slow\"\ncross = \"slow\""})
    EXPECT_EQ(train(4, hierarchical(transports(keys) + slow_loopback(kHosts, 0)), kProblem, 6),
              wanted)
        << keys;
}

// The least duration of a step if each message over `slow` takes 30 ms. Only delays are compared.
TEST(Transports, EachLevelsMessagesGoOverItsOwn) {
  constexpr double kLatency = 30'000;
  const auto step_us = [&](const std::string& keys) {
    double took = 0;
    testing::with_ranks(4, hierarchical(transports(keys) + slow_loopback(kHosts, kLatency)),
                        [&](Runtime& runtime, uint32_t rank) {
                          auto set = make_set(runtime, {{"weight", {9600}}});
                          ASSERT_OK(set.status());
                          std::vector<std::vector<float>> gradients{std::vector<float>(9600, 1.0f)};
                          const uint64_t start = now_us();
                          ASSERT_OK(run_step(*set.value(), gradients));
                          if (rank == 0) took = double(now_us() - start);
                        });
    return took;
  };
  EXPECT_GE(step_us("cross = \"slow\""), kLatency);
  EXPECT_GE(step_us("local = \"slow\""), 2 * kLatency);
  EXPECT_GE(step_us("local = \"slow\"\ncross = \"slow\""), 3 * kLatency);
}

// The error of every rank if the run cannot start.
std::vector<std::string> refusals(uint32_t size, const std::string& scheme) {
  static std::atomic<int> next{0};
  const std::string hub = fmt::format("transports-{}", next++);
  std::vector<std::string> messages(size);
  std::vector<std::thread> threads;
  for (uint32_t rank = 0; rank < size; ++rank)
    threads.emplace_back([&, rank] {
      messages[rank] =
          std::string(open_rank(rank_config(scheme, hub, rank, size)).status().message());
    });
  for (std::thread& thread : threads) thread.join();
  return messages;
}

TEST(Transports, ThatDisagreeOnHostsAreRefusedOnAllRanks) {
  for (const std::string& message :
       refusals(2, scheme_text("") + transports("local = \"slow\"") + slow_loopback("0,0", 0) +
                       "[collective.loopback]\nhosts = \"0,1\"\n"))
    EXPECT_NE(message.find("both transports must find equal ranks on equal hosts"),
              std::string::npos)
        << message;
}

TEST(Transports, ThatAreNoneAreRefused) {
  for (const std::string& message : refusals(2, scheme_text("") + transports("local = \"oktopk\"")))
    EXPECT_NE(message.find("collective 'oktopk' is a composite"), std::string::npos) << message;
  for (const std::string& message : refusals(2, scheme_text("") + transports("local = \"shm\"")))
    EXPECT_NE(message.find("there is no collective plugin \"shm\""), std::string::npos) << message;
}

}  // namespace
}  // namespace penstock::transports_test
