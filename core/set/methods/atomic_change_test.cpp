// A change that fails leaves the set unchanged on every rank. The set trains on, with the bits of a
// run without the change.

#include "core/set/training_testing.hpp"

#include <filesystem>

namespace penstock::atomic_change_test {
namespace {

using testing::Values;

constexpr uint32_t kRanks = 2;
constexpr uint64_t kSwitch = 2, kSteps = 5, kNever = 1000;
const std::vector<testing::GradientShape> kShapes{{"weight", {8, 6}}, {"bias", {8}}};

// `scheme` before the switch to `changes`; the test's plugin is a compressor or a memory.
struct Case {
  std::string scheme, changes, kind;
  uint64_t at_step = kSwitch;
};

std::string config_of(const Case& given, uint64_t run, uint32_t rank, int64_t fail_at) {
  const std::string program = std::filesystem::canonical("/proc/self/exe").parent_path().string();
  std::string tables = fmt::format(
      "allow_insecure_paths = true\nplugin_path = [\"{0}/plugins/fails\", "
      "\"{0}/plugins/fails_memory\"]\n[{1}.fails]\nlabel = \"run {2} rank {3}\"\nfail_at = {4}\n",
      program, given.kind, run, rank, rank == 1 ? fail_at : 0);
  tables += fmt::format("[[switch]]\nat_step = {}\nset = {{ {} }}\n", given.at_step, given.changes);
  return testing::rank_config(testing::scheme_text(given.scheme, tables),
                              fmt::format("atomic-change-{}", run), rank, kRanks);
}

// The observations of one rank.
struct Seen {
  Status made, switched;
  std::vector<Values> results;  // one per step
  std::string report;
};

void train(Set& set, uint32_t rank, Seen& seen) {
  const testing::Problem problem(kShapes);
  const testing::Doubles parameters = problem.start();
  for (uint64_t step = 0; step < kSteps; ++step) {
    Values gradients = problem.gradients(parameters, rank, step);
    const Status status = testing::run_step(set, gradients);
    if (step + 1 == kSwitch)
      seen.switched = status;
    else
      ASSERT_OK(status);
    seen.results.push_back(gradients);
  }
  const auto report = set.report();
  ASSERT_OK(report.status());
  seen.report = *report;
}

// Call number `fail_at` of the plugin on rank 1 fails. 0: no call fails.
std::vector<Seen> run(const Case& given, int64_t fail_at) {
  static std::atomic<uint64_t> runs{0};
  const uint64_t number = runs++;
  std::vector<Seen> seen(kRanks);
  std::vector<std::thread> threads;
  for (uint32_t rank = 0; rank < kRanks; ++rank)
    threads.emplace_back([&, rank] {
      auto runtime = testing::open_rank(config_of(given, number, rank, fail_at));
      ASSERT_OK(runtime.status());
      auto set = testing::make_set(**runtime, kShapes);
      seen[rank].made = set.status();
      if (set.ok()) train(**set, rank, seen[rank]);
    });
  for (std::thread& thread : threads) thread.join();
  return seen;
}

// Every call of the switch fails once.
void expect_atomic(const Case& given) {
  Case without = given;
  without.at_step = kNever;
  const std::vector<Seen> expected = run(without, 0);
  ASSERT_OK(expected[0].made);
  int failed_switches = 0;
  for (int64_t fail_at = 1;; ++fail_at) {
    ASSERT_LT(fail_at, 100) << "no call failed the switch any more, and it failed";
    SCOPED_TRACE(fmt::format("call {} fails", fail_at));
    const std::vector<Seen> seen = run(given, fail_at);
    ASSERT_EQ(seen[0].made.ok(), seen[1].made.ok());
    if (!seen[0].made.ok()) continue;
    ASSERT_EQ(seen[0].switched.ok(), seen[1].switched.ok());
    if (seen[0].switched.ok()) break;
    ++failed_switches;
    for (uint32_t rank = 0; rank < kRanks; ++rank) {
      const std::string_view message = seen[rank].switched.message();
      EXPECT_NE(message.find("this plugin fails in"), std::string_view::npos) << message;
      EXPECT_NE(message.find("end of step 1"), std::string_view::npos) << message;
      EXPECT_EQ(seen[rank].results, expected[rank].results);
      EXPECT_NE(seen[rank].report.find("\"topk\""), std::string::npos) << seen[rank].report;
    }
  }
  EXPECT_GE(failed_switches, 2);
}

TEST(ChangesThatFail, LeaveTheSetAsItWasWhateverCallOfTheNewCompressorFails) {
  expect_atomic({"compressor = \"topk\"\nmemory = \"residual\"\nscheduler = \"fusion\"",
                 "scheme.compressor = \"fails\"", "compressor"});
}

TEST(ChangesThatFail, LeaveWhatAMemoryKeepsWhereItsEndFailsHalfWay) {
  expect_atomic({"compressor = \"topk\"\nmemory = \"fails\"\nscheduler = \"wfbp\"",
                 "scheme.compressor = \"none\", scheme.memory = \"none\"", "memory"});
}

}  // namespace
}  // namespace penstock::atomic_change_test
