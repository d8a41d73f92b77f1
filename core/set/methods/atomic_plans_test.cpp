// A new plan or a load that fails leaves the set unchanged, to the bit. Every plugin call of a new
// plan or a load fails once, and so does every allocation.

#include "core/set/training_testing.hpp"

#include <support/allocations.hpp>
#include <support/long.hpp>
#include <support/sanitized.hpp>

#include <filesystem>

namespace penstock::atomic_plans_test {
namespace {

using testing::Values;

constexpr uint32_t kRanks = 2;
constexpr uint64_t kSteps = 5, kSaved = 2, kLoaded = 4;  // steps of a save and a load
const std::vector<testing::GradientShape> kShapes{{"weight", {8, 6}}, {"bias", {8}}};
// The compressor sends half of every element, so that results do not depend on the cuts of a plan.
// The memory has one tensor per gradient. The scheduler makes a new plan after every step.
const char* const kKeys =
    "compressor = \"fails\"\nmemory = \"fails\"\nscheduler = \"random-plan-c\"";

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

// A fault on the ranks in `on`: either call number `call` of the plugin of this kind fails, or
// allocation number `allocation` of the application's thread fails, at the end of step kLoaded - 1
// or in the load.
struct Fault {
  std::string kind = "compressor";
  int64_t call = 0;
  uint64_t allocation = 0;
  bool on_all_ranks = false;
  bool loads = false;
};

std::string config_of(const Fault& fault, uint64_t run, uint32_t rank) {
  const std::string program = std::filesystem::canonical("/proc/self/exe").parent_path().string();
  const bool fails = fault.on_all_ranks || rank == 1;
  return testing::rank_config(
      testing::scheme_text(
          kKeys, fmt::format("log_level = \"error\"\nallow_insecure_paths = true\n"
                             "deterministic = true\n"  // so that no rank alone probes costs
                             "plugin_path = [\"{0}/plugins/fails\", "
                             "\"{0}/plugins/fails_memory\", \"{0}/plugins/random_plan\"]\n"
                             "[{1}.fails]\nlabel = \"plans {2} rank {3}\"\nfail_at = {4}\n",
                             program, fault.kind, run, rank, fails ? fault.call : 0)),
      fmt::format("atomic-plans-{}", run), rank, kRanks);
}

// The strides of the allocations and calls that fail, so that the test takes seconds. tools/nightly
// takes every allocation.
const uint64_t kStride = test::kThreadsSanitized ? 2000
                         : test::kSanitized      ? 97
                         : test::is_long()       ? 1
                                                 : 145;
// Strides of plugin calls are odd, so that they meet both of two calls that alternate.
const int64_t kCallStride = test::kThreadsSanitized ? 60
                            : test::kSanitized      ? 7
                            : test::is_long()       ? 1
                                                    : 5;

// The observations of one rank.
struct Seen {
  Status made, loaded, over;    // `over`: why the run ended, if it did
  std::vector<Status> ends;     // one per step
  std::vector<Values> results;  // per step
};

// `gradients` must outlive the set: a failed step returns while other buckets still run.
void train(Set& set, uint32_t rank, const Fault& fault, Values& gradients, Seen& seen) {
  const testing::Problem problem(kShapes);
  const testing::Doubles parameters = problem.start();
  std::string saved;
  const bool fails = fault.on_all_ranks || rank == 1;
  for (uint64_t step = 0; step < kSteps; ++step) {
    gradients = problem.gradients(parameters, rank, step);
    for (size_t i = gradients.size(); i-- > 0 && seen.over.ok();)
      seen.over = set.gradient_ready(i, testing::view_of(gradients[i]));
    if (seen.over.ok()) seen.over = set.wait_all();
    if (!seen.over.ok()) return;
    if (step + 1 == kLoaded && fails && !fault.loads) test::failing_allocation = fault.allocation;
    seen.ends.push_back(set.step_end(true));
    test::failing_allocation = 0;
    seen.results.push_back(gradients);
    if (step + 1 == kSaved) ASSERT_OK(set.save(saved));
    if (step + 1 != kLoaded || !fault.loads) continue;
    if (fails) test::failing_allocation = fault.allocation;
    seen.loaded = unless_thrown([&] { return set.load(saved); });  // like penstock_set_load
    test::failing_allocation = 0;
    if (seen.loaded.ok()) return;
  }
}

std::vector<Seen> run(const Fault& fault) {
  static std::atomic<uint64_t> runs{0};
  const uint64_t number = runs++;
  std::vector<Seen> seen(kRanks);
  std::vector<std::thread> threads;
  for (uint32_t rank = 0; rank < kRanks; ++rank)
    threads.emplace_back([&, rank] {
      auto runtime = testing::open_rank(config_of(fault, number, rank));
      ASSERT_OK(runtime.status());
      Values gradients;
      auto set = testing::make_set(**runtime, kShapes);
      seen[rank].made = set.status();
      if (set.ok()) train(**set, rank, fault, gradients, seen[rank]);
    });
  for (std::thread& thread : threads) thread.join();
  return seen;
}

uint64_t failures_among(const std::vector<Status>& ends) {
  return uint64_t(std::count_if(ends.begin(), ends.end(), [](const auto& s) { return !s.ok(); }));
}

// Both ranks learn of the failure in one step, and their results equal `expected`.
void expect_undisturbed(const std::vector<Seen>& seen, const std::vector<Seen>& expected) {
  for (uint32_t rank = 0; rank < kRanks; ++rank) {
    ASSERT_EQ(seen[rank].results, expected[rank].results) << "rank " << rank;
    for (uint64_t step = 0; step < kSteps; ++step)
      ASSERT_EQ(seen[rank].ends[step].ok(), seen[0].ends[step].ok()) << "step " << step;
  }
}

TEST(NewPlansThatFail, LeaveTheSetAsItWasWhateverPluginCallFails) {
  const std::vector<Seen> expected = run({});
  ASSERT_OK(expected[0].made);
  for (const char* kind : {"compressor", "memory"}) {
    uint64_t n_failed = 0;
    for (int64_t call = 1;; call += kCallStride) {
      SCOPED_TRACE(fmt::format("call {} of the {} fails", call, kind));
      ASSERT_LT(call, 200 + kCallStride) << "no call failed a plan any more, and one did";
      const std::vector<Seen> seen = run({.kind = kind, .call = call});
      ASSERT_EQ(seen[0].made.ok(), seen[1].made.ok());
      if (!seen[0].made.ok()) continue;
      ASSERT_NO_FATAL_FAILURE(expect_undisturbed(seen, expected));
      if (failures_among(seen[0].ends) == 0) break;
      ++n_failed;
      ASSERT_EQ(failures_among(seen[0].ends), 1u);
      for (const Status& end : seen[0].ends)
        EXPECT_TRUE(end.ok() || contains(end.message(), "this plugin fails in")) << end.message();
    }
    EXPECT_GE(n_failed, kSteps / kCallStride);
    RecordProperty(kind, fmt::format("{}", n_failed));
  }
}

TEST(LoadsThatFail, LeaveTheSetAsItWasWhateverPluginCallFails) {
  const std::vector<Seen> expected = run({});
  for (const char* kind : {"compressor", "memory"}) {
    uint64_t n_failed = 0;
    for (int64_t call = 1;; call += kCallStride) {
      SCOPED_TRACE(fmt::format("call {} of the {} fails", call, kind));
      ASSERT_LT(call, 200 + kCallStride) << "no call failed a load any more, and one did";
      const std::vector<Seen> seen =
          run({.kind = kind, .call = call, .on_all_ranks = true, .loads = true});
      if (!seen[0].made.ok()) continue;
      ASSERT_EQ(seen[0].loaded.ok(), seen[1].loaded.ok());
      if (!seen[0].loaded.ok()) {
        ++n_failed;
        ASSERT_NO_FATAL_FAILURE(expect_undisturbed(seen, expected));
      } else if (failures_among(seen[0].ends) == 0) {
        break;
      }
    }
    EXPECT_GE(n_failed, test::kSanitized ? 0u : kCallStride == 1 ? 2u : 1u);
    RecordProperty(kind, fmt::format("{}", n_failed));
  }
}

// If making bound schemes, plans or buckets fails, every rank learns of the failure and continues.
// If another allocation between two steps fails, the run ends: the rank without memory reports its
// failure, and the other rank's error names that rank.
TEST(NewPlansThatFail, LeaveTheSetAsItWasWhateverAllocationOfTheBucketsFails) {
  const std::vector<Seen> expected = run({});
  uint64_t n_failed = 0, n_ended = 0;
  for (uint64_t allocation = 1;; allocation += kStride) {
    SCOPED_TRACE(fmt::format("allocation {} fails", allocation));
    const std::vector<Seen> seen = run({.allocation = allocation});
    if (!seen[1].over.ok()) {
      EXPECT_TRUE(contains(seen[1].over.message(), "out of memory")) << seen[1].over.message();
      EXPECT_TRUE(contains(seen[0].over.message(), "rank 1")) << seen[0].over.message();
      ++n_ended;
      continue;
    }
    ASSERT_NO_FATAL_FAILURE(expect_undisturbed(seen, expected));
    if (failures_among(seen[0].ends) == 0) break;
    ++n_failed;
  }
  EXPECT_GE(n_failed, 100 / kStride);
  RecordProperty("refused", fmt::format("{}", n_failed));
  RecordProperty("ended", fmt::format("{}", n_ended));
}

// A load does not need the other ranks.
TEST(LoadsThatFail, LeaveTheSetAsItWasWhateverAllocationFails) {
  const std::vector<Seen> expected = run({});
  uint64_t n_failed = 0;
  for (uint64_t allocation = 1;; allocation += kStride) {
    SCOPED_TRACE(fmt::format("allocation {} fails", allocation));
    const std::vector<Seen> seen =
        run({.allocation = allocation, .on_all_ranks = true, .loads = true});
    ASSERT_EQ(seen[0].loaded.ok(), seen[1].loaded.ok());
    if (seen[0].loaded.ok()) break;
    ASSERT_NO_FATAL_FAILURE(expect_undisturbed(seen, expected));
    ++n_failed;
  }
  EXPECT_GE(n_failed, 100 / kStride);
}

}  // namespace
}  // namespace penstock::atomic_plans_test
