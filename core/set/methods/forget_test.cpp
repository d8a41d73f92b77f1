// Steps whose results are thrown away, under every scheme: a run that has some of them goes on, to
// the bit, as one that has none, in its results and in what it saves.

#include "core/set/testing.hpp"

#include <support/sanitized.hpp>
#include <testing/data.hpp>

#include <cstring>
#include <fstream>
#include <limits>
#include <set>

namespace penstock::forget_test {
namespace {

using testing::make_set;
using testing::run_step;
using testing::scheme_text;
using testing::view_of;
using testing::with_ranks;

using Values = std::vector<std::vector<float>>;
using Flags = std::vector<uint8_t>;

const std::vector<testing::GradientShape> kShapes{
    {"first", {24, 16}}, {"bias", {24}}, {"second", {9, 40}}, {"empty", {0}}, {"last", {33}}};
constexpr uint64_t kSteps = 7;

// `draw`: of the step, or a number of its own for one that is thrown away.
Values gradients_of(uint32_t rank, uint64_t draw) {
  Values gradients;
  for (size_t g = 0; g < kShapes.size(); ++g) {
    uint64_t numel = 1;
    for (const int64_t extent : kShapes[g].shape) numel *= uint64_t(extent);
    gradients.push_back(test::heavy_tailed(numel, 1 + 1000 * draw + 10 * rank + g));
  }
  return gradients;
}

struct Scheme {
  std::string name;
  std::string text;
  uint32_t flags = 0;
};
void PrintTo(const Scheme& scheme, std::ostream* out) {
  *out << scheme.name;
}

// ---- a run with steps that are forgotten, and one without ----

// Ready, but for what this rank has not computed: that is told to be absent, or left out.
Status run_to_its_end(Set& set, Values& gradients, const std::set<size_t>& absent = {},
                      const std::set<size_t>& left_out = {}) {
  for (size_t g = gradients.size(); g-- > 0;) {
    if (left_out.contains(g)) continue;
    const penstock_tensor tensor = view_of(gradients[g]);
    PENSTOCK_TRY(absent.contains(g) ? set.gradient_absent(g, tensor)
                                    : set.gradient_ready(g, tensor));
  }
  if (set.defers()) PENSTOCK_TRY(set.backward_end());
  return set.wait_all();
}

// As many as the number of the step says, of every kind; the state is what it was after each.
void forget_some(Set& set, uint32_t size, uint32_t rank, uint64_t step) {
  std::string before;
  ASSERT_OK(set.save(before));
  for (uint64_t i = 0; i < step % 3; ++i) {
    const uint64_t draw = 100 + 10 * step + i;
    Values gradients = gradients_of(rank, draw);
    std::set<size_t> absent, left_out;
    if (rank == draw % size) {
      if (draw % 4 == 0) gradients[0][5] = std::numeric_limits<float>::infinity();
      if (draw % 4 == 1) gradients[2][9] = std::numeric_limits<float>::quiet_NaN();
      if (draw % 4 == 2) absent = {0, 1};
      if (draw % 4 == 3) left_out = {2};
    }
    ASSERT_OK(run_to_its_end(set, gradients, absent, left_out));
    std::string after;
    if (draw % 2 == 0) {
      ASSERT_OK(set.save(after = {}));
      EXPECT_TRUE(before == after) << "before the end of what is thrown away before step " << step;
    }
    ASSERT_OK(set.step_end(PENSTOCK_STEP_FORGOTTEN));
    ASSERT_OK(set.save(after = {}));
    EXPECT_TRUE(before == after) << "thrown away before step " << step;
  }
}

struct Trace {
  std::vector<std::vector<Values>> results;     // [rank][step], of the steps that count
  std::vector<std::vector<std::string>> saved;  // after each of them
  uint64_t forgotten = 0;
  std::string refused;  // why there is no such set
};

Trace run(const Scheme& scheme, uint32_t size, bool forgets) {
  Trace seen;
  seen.results.resize(size);
  seen.saved.resize(size);
  with_ranks(size, scheme.text, [&](Runtime& runtime, uint32_t rank) {
    auto set = make_set(runtime, kShapes, scheme.flags);
    if (!set.ok()) {
      if (rank == 0) seen.refused = set.status().message();
      return;
    }
    for (uint64_t step = 0; step < kSteps; ++step) {
      if (forgets) {
        ASSERT_NO_FATAL_FAILURE(forget_some(*set.value(), size, rank, step));
      }
      Values gradients = gradients_of(rank, step);
      ASSERT_OK(run_to_its_end(*set.value(), gradients));
      ASSERT_OK(set.value()->step_end());
      seen.results[rank].push_back(gradients);
      ASSERT_OK(set.value()->save(seen.saved[rank].emplace_back()));
    }
    penstock_counters counters{};
    set.value()->counters(counters);
    EXPECT_EQ(counters.steps, kSteps);
    if (rank == 0) seen.forgotten = counters.forgotten_steps;
  });
  return seen;
}

bool same_bits(const Values& a, const Values& b) {
  for (size_t g = 0; g < a.size(); ++g)
    if (!a[g].empty() && std::memcmp(a[g].data(), b[g].data(), a[g].size() * sizeof(float)) != 0)
      return false;
  return true;
}

// Without a word where both runs refuse the scheme; `refused` says why.
void expect_no_trace(const Scheme& scheme, uint32_t size, std::string* refused = nullptr) {
  const Trace plain = run(scheme, size, false), forgetful = run(scheme, size, true);
  if (refused != nullptr) *refused = plain.refused;
  if (!plain.refused.empty() && refused != nullptr) return;
  ASSERT_EQ(plain.refused, "");
  EXPECT_EQ(plain.forgotten, 0u);
  EXPECT_EQ(forgetful.forgotten, 6u);  // of seven steps, with none, one or two before each
  for (uint32_t rank = 0; rank < size; ++rank) {
    ASSERT_EQ(forgetful.results[rank].size(), kSteps) << scheme.name;
    for (uint64_t step = 0; step < kSteps; ++step) {
      ASSERT_TRUE(same_bits(forgetful.results[rank][step], plain.results[rank][step]))
          << scheme.name << " on " << size << ", results of rank " << rank << " in step " << step;
      ASSERT_TRUE(forgetful.saved[rank][step] == plain.saved[rank][step])
          << scheme.name << " on " << size << ", state of rank " << rank << " after step " << step;
    }
  }
}

// ---- schemes ----

Scheme scheme(const std::string& name, const std::string& keys, const std::string& tables = "",
              uint32_t flags = 0) {
  return {name, scheme_text(keys, tables), flags};
}

std::string keys(const std::string& compressor, const std::string& memory,
                 const std::string& more = "scheduler = \"wfbp\"") {
  return fmt::format("compressor = \"{}\"\nmemory = \"{}\"\n{}", compressor, memory, more);
}

Scheme oktopk() {
  Scheme made = scheme("oktopk", keys("topk", "residual", "transport = \"loopback\""),
                       "[compressor.topk]\ndensity = 0.05\n"
                       "[collective.oktopk]\nthreshold_period = 2\nboundary_period = 4\n");
  made.text.replace(made.text.find("\"loopback\""), 10, "\"oktopk\"");
  return made;
}

const std::string kFew = "[compressor.topk]\ndensity = 0.05\n";
const std::string kRank = "rank = 2\nminimum_compression_rate = 0.0\n";
const std::string kDense = "[[rule]]\nmatch = { dims = 1 }\ncompressor = \"none\"\n";

const Scheme kSchemes[] = {
    scheme("none", keys("none", "none")),
    scheme("residual_without_loss", keys("none", "residual")),
    scheme("none_with_dgc", keys("none", "dgc")),
    scheme("topk", keys("topk", "residual"), kFew),
    scheme("topk_fused", keys("topk", "residual", "scheduler = \"fusion\""), kFew),
    scheme("topk_strict", keys("topk", "residual"), "nonfinite = \"strict\"\n" + kFew),
    scheme("topk_of_a_bucket", keys("topk", "residual", "scheduler = \"fusion\""),
           kFew + "scope = \"bucket\"\n"),
    scheme("topk_in_halves", keys("topk", "residual"), kFew + "value_type = \"fp16\"\n"),
    scheme("topk_with_momentum", keys("topk", "momentum"), kFew),
    scheme("topk_with_ef21", keys("topk", "ef21"), kFew + "[memory.ef21]\nzeta = 0.3\n" + kDense),
    scheme("dgc", keys("dgc", "dgc", "scheduler = \"fusion\""),
           "[compressor.dgc]\ndensity = 0.05\n" + kDense),
    scheme("dgc_strict", keys("dgc", "dgc", "scheduler = \"fusion\""),
           "nonfinite = \"strict\"\n[compressor.dgc]\ndensity = 0.05\n" + kDense),
    scheme("nesterov_without_masking", keys("topk", "dgc"),
           kFew + "[memory.dgc]\nnesterov = true\nmomentum_masking = false\n"),
    scheme("clipped_by_all_norms", keys("topk", "dgc"),
           kFew + "[memory.dgc]\nclipping = \"norm_global\"\nclip = 0.5\n" + kDense),
    scheme("fp16", keys("fp16", "residual")),
    scheme("fp16_with_dgc", keys("fp16", "dgc")),
    scheme("bf16", keys("bf16", "residual")),
    scheme("powersgd", keys("powersgd", "residual"), "[compressor.powersgd]\n" + kRank),
    scheme("powersgd_with_dgc", keys("powersgd", "dgc"), "[compressor.powersgd]\n" + kRank),
    scheme("acpsgd", keys("acpsgd", "residual"), "[compressor.acpsgd]\nrank = 2\n"),
    scheme("acpsgd_with_dgc_fused", keys("acpsgd", "dgc", "scheduler = \"fusion\""),
           "[compressor.acpsgd]\nrank = 2\n"),
    scheme("signsgd", keys("signsgd", "momentum")),
    scheme("efsign", keys("efsign", "residual")),
    scheme("tbq", keys("tbq", "residual")),
    scheme("threshold", keys("threshold", "residual")),
    scheme("qsgd", keys("qsgd", "none")),
    scheme("randomk", keys("randomk", "residual"), "[compressor.randomk]\ndensity = 0.2\n"),
    oktopk(),
    scheme("dear", keys("none", "none", "scheduler = \"dear\"\nroute = \"split\""), "",
           PENSTOCK_SET_DEFERRED_UPDATE),
    scheme("acpsgd_deferred", keys("acpsgd", "residual", "scheduler = \"dear\"\nroute = \"split\""),
           "[compressor.acpsgd]\nrank = 2\n", PENSTOCK_SET_DEFERRED_UPDATE),
    // What the memory kept when it ended joins the result of the first step that counts.
    scheme("switch_to_nothing_kept", keys("topk", "residual"),
           kFew + "[[switch]]\nat_step = 2\n"
                  "set = { scheme.compressor = \"none\", scheme.memory = \"none\" }\n"),
    scheme("switch_to_another_memory", keys("topk", "residual"),
           kFew + "[[switch]]\nat_step = 2\nset = { scheme.memory = \"dgc\" }\n"
                  "[[switch]]\nat_step = 5\nset = { compressor.topk.density = 0.5 }\n"),
    scheme("switch_in_strict_runs", keys("topk", "dgc"),
           "nonfinite = \"strict\"\n" + kFew +
               "[[switch]]\nat_step = 4\nset = { scheme.compressor = \"none\" }\n"),
};

class Forgotten : public ::testing::TestWithParam<std::tuple<Scheme, uint32_t>> {};
INSTANTIATE_TEST_SUITE_P(Schemes, Forgotten,
                         ::testing::Combine(::testing::ValuesIn(kSchemes),
                                            ::testing::Values(1, 2, 3, 4)),
                         testing::name_and_size);

TEST_P(Forgotten, StepsLeaveNoTrace) {
  const auto& [scheme, size] = GetParam();
  expect_no_trace(scheme, size);
}

class ForgottenOnRoutes : public ::testing::TestWithParam<uint32_t> {};
INSTANTIATE_TEST_SUITE_P(Sizes, ForgottenOnRoutes, ::testing::Values(1, 2, 3, 4));

TEST_P(ForgottenOnRoutes, StepsLeaveNoTrace) {
  struct Route {
    const char* name;
    std::string keys;
    std::string tables;
  };
  const std::string wfbp = "scheduler = \"wfbp\"\n";
  const std::string owned = wfbp + "route = \"shard\"\nowner_memory = \"residual\"";
  const Route routes[] = {
      {"hierarchical", keys("topk", "residual", wfbp + "route = \"hierarchical\""), kFew},
      {"hierarchical dgc", keys("topk", "dgc", wfbp + "route = \"hierarchical\""), kFew + kDense},
      {"hierarchical acpsgd", keys("acpsgd", "residual", wfbp + "route = \"hierarchical\""),
       "[compressor.acpsgd]\nrank = 2\n"},
      {"shard", keys("topk", "residual", wfbp + "route = \"shard\""), kFew},
      {"shard strict", keys("topk", "residual", wfbp + "route = \"shard\""),
       "nonfinite = \"strict\"\n" + kFew},
      {"shard dgc", keys("topk", "dgc", owned), kFew},
      {"shard threshold", keys("threshold", "residual", wfbp + "route = \"shard\""), ""}};
  const char* const hosts[] = {"0", "0,1", "0,0,1", "0,0,1,1"};
  for (const Route& route : routes)
    expect_no_trace(scheme(route.name, route.keys,
                           route.tables + fmt::format("[collective.loopback]\nhosts = \"{}\"\n",
                                                      hosts[GetParam() - 1])),
                    GetParam());
}

// Over loopback; `runtime` has further keys of [runtime].
Scheme published(const std::filesystem::path& file, const std::string& runtime) {
  std::ifstream stream(file);
  std::string text(std::istreambuf_iterator<char>(stream), {});
  const auto replace = [&](const std::string& what, const std::string& by) {
    if (const size_t at = text.find(what); at != std::string::npos)
      text.replace(at, what.size(), by);
  };
  replace("transport  = \"auto\"", "transport = \"loopback\"");
  if (text.find("\ncollective") == std::string::npos)
    replace("[scheme]\n", "[scheme]\ncollective = \"loopback\"\n");
  text += "\n[runtime]\ndeadline_s = 20\n" + runtime;
  return {file.stem().string(), text, PENSTOCK_SET_DEFERRED_UPDATE};
}

TEST_P(ForgottenOnRoutes, StepsLeaveNoTraceUnderThePublishedSchemes) {
  if (test::kSanitized) GTEST_SKIP() << "not all plugins are built";
  const auto program = std::filesystem::canonical("/proc/self/exe").parent_path();
  uint64_t taken = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(program / "../share/penstock/conf")) {
    if (entry.path().extension() != ".toml") continue;
    std::string reason;
    ASSERT_NO_FATAL_FAILURE(
        expect_no_trace(published(entry.path(), "deterministic = true\n"), GetParam(), &reason));
    taken += reason.empty() ? 1 : 0;
    if (reason.empty()) continue;
    // Its plans follow from times, so two runs differ; but within one nothing changes.
    EXPECT_NE(reason.find("deterministic"), std::string::npos) << entry.path() << ": " << reason;
    const Trace trace = run(published(entry.path(), ""), GetParam(), true);
    EXPECT_EQ(trace.refused, "") << entry.path();
    EXPECT_EQ(trace.forgotten, 6u) << entry.path();
  }
  EXPECT_GE(taken, 36u);
}

// ---- single gradients ----

// Which of them are thrown away in a step: those of one of two optimizers, or one alone.
std::set<size_t> thrown_in(uint64_t step) {
  if (step % 4 == 1) return {0, 2};
  if (step % 4 == 2) return {1, 4};
  if (step % 4 == 3) return {step % kShapes.size()};
  return {};
}

// Two optimizers; what is thrown away is gone when the one steps that has it, or nobody has stepped
// when it is looked for.
void end_as_seen(Set& set, uint64_t step) {
  const std::set<size_t> thrown = thrown_in(step);
  for (const std::vector<uint64_t>& gradients :
       {std::vector<uint64_t>{0, 2}, std::vector<uint64_t>{1, 3, 4}}) {
    Flags gone;
    for (const uint64_t g : gradients) gone.push_back(thrown.contains(g));
    const bool all_gone = std::find(gone.begin(), gone.end(), 0) == gone.end();
    if (all_gone && step > 0) continue;
    ASSERT_OK(set.optimizer_step(gradients, gone, PENSTOCK_OPTIMIZER_BEGINS));
    ASSERT_OK(set.optimizer_step(gradients, {}, PENSTOCK_OPTIMIZER_ENDS));
  }
  Flags gone;
  for (size_t g = 0; g < kShapes.size(); ++g) gone.push_back(thrown.contains(g));
  ASSERT_OK(set.results_gone(gone));
  EXPECT_FALSE(set.outcome_is_open());
  ASSERT_OK(set.step_end(PENSTOCK_STEP_AS_SEEN));
}

// Gradient g of a run with all of them, against a run with g alone and without the steps in which
// it is thrown away.
void expect_gradients_forgotten_alone(const std::string& compressor, const std::string& memory,
                                      const std::string& tables, uint32_t size) {
  const std::string text = scheme_text(keys(compressor, memory), tables);
  std::vector<Values> together;
  with_ranks(size, text, [&](Runtime& runtime, uint32_t rank) {
    auto set = make_set(runtime, kShapes);
    ASSERT_OK(set.status());
    for (uint64_t step = 0; step < 12; ++step) {
      Values gradients = gradients_of(rank, step);
      ASSERT_OK(run_to_its_end(*set.value(), gradients));
      ASSERT_NO_FATAL_FAILURE(end_as_seen(*set.value(), step));
      if (rank == 0) together.push_back(gradients);
    }
    penstock_counters counters{};
    set.value()->counters(counters);
    EXPECT_EQ(counters.steps, 12u) << "some gradient was applied in each";
  });
  ASSERT_EQ(together.size(), 12u);
  for (size_t g = 0; g < kShapes.size(); ++g)
    with_ranks(size, text, [&](Runtime& runtime, uint32_t rank) {
      auto set = make_set(runtime, {kShapes[g]});
      ASSERT_OK(set.status());
      for (uint64_t step = 0; step < 12; ++step) {
        if (thrown_in(step).contains(g)) continue;
        Values gradients{gradients_of(rank, step)[g]};
        ASSERT_OK(run_step(*set.value(), gradients));
        if (rank == 0) {
          EXPECT_TRUE(same_bits(gradients, {together[step][g]}))
              << compressor << " with " << memory << ": '" << kShapes[g].name << "' in step "
              << step;
        }
      }
    });
}

TEST_P(ForgottenOnRoutes, GradientsLeaveNoTraceEachOnItsOwn) {
  expect_gradients_forgotten_alone("topk", "residual", kFew, GetParam());
  expect_gradients_forgotten_alone("topk", "dgc", kFew + kDense, GetParam());
  expect_gradients_forgotten_alone("topk", "ef21", kFew, GetParam());
  expect_gradients_forgotten_alone("fp16", "residual", "", GetParam());
}

TEST(ForgottenGradients, OfWhichAllAreGoneMakeAStepThatDoesNotCount) {
  with_ranks(2, scheme_text(keys("topk", "residual"), kFew), [&](Runtime& runtime, uint32_t rank) {
    auto set = make_set(runtime, kShapes);
    ASSERT_OK(set.status());
    const std::vector<uint64_t> all{0, 1, 2, 3, 4};
    const auto step = [&](uint64_t draw, bool is_thrown_away) {
      Values gradients = gradients_of(rank, draw);
      ASSERT_OK(run_to_its_end(*set.value(), gradients));
      if (is_thrown_away) {
        ASSERT_OK(set.value()->results_gone(Flags(all.size(), 1)));
      } else {
        ASSERT_OK(set.value()->optimizer_step(all, {}, PENSTOCK_OPTIMIZER_BEGINS));
        ASSERT_OK(set.value()->optimizer_step(all, {}, PENSTOCK_OPTIMIZER_ENDS));
      }
      ASSERT_OK(set.value()->step_end(PENSTOCK_STEP_AS_SEEN));
    };
    step(0, false);
    std::string before, after;
    ASSERT_OK(set.value()->save(before));
    step(1, true);
    ASSERT_OK(set.value()->save(after = {}));
    EXPECT_TRUE(before == after);
    step(2, false);
    ASSERT_OK(set.value()->save(after = {}));
    EXPECT_FALSE(before == after);
  });
}

// Before any optimizer was seen nothing else tells of it.
TEST(ForgottenGradients, AreAllOfAStepWithAVoidBucketUntilAnOptimizerIsSeen) {
  for (const char* nonfinite : {"void", "strict"})
    with_ranks(2,
               scheme_text(keys("topk", "residual"),
                           fmt::format("nonfinite = \"{}\"\n{}", nonfinite, kFew)),
               [&](Runtime& runtime, uint32_t rank) {
                 auto set = make_set(runtime, kShapes);
                 ASSERT_OK(set.status());
                 std::string before, after;
                 for (const bool is_void : {false, true, false}) {
                   ASSERT_OK(set.value()->save(before = {}));
                   Values gradients = gradients_of(rank, 0);
                   if (is_void && rank == 1) gradients[0][3] = std::nanf("");
                   ASSERT_OK(run_to_its_end(*set.value(), gradients));
                   ASSERT_OK(set.value()->step_end(PENSTOCK_STEP_AS_SEEN));
                   ASSERT_OK(set.value()->save(after = {}));
                   EXPECT_EQ(before == after, is_void) << nonfinite;
                 }
               });
}

// A memory ends with the step in which one gradient is forgotten, or of which the tensors are those
// of another phase; this one takes what it hands over out of its work.
TEST(ForgottenGradients, AreNotInWhatAMemoryHandsOver) {
  const auto results_with = [](const std::string& memory, const std::string& compressor) {
    const std::string tables = testing::test_plugins({"keep"}) +
                               (compressor == "topk" ? kFew : "") +
                               "[[switch]]\nat_step = 3\n"
                               "set = { scheme.compressor = \"none\", scheme.memory = \"none\" }\n";
    Trace seen;
    seen.results.resize(2);
    with_ranks(2, scheme_text(keys(compressor, memory), tables),
               [&](Runtime& runtime, uint32_t rank) {
                 auto set = make_set(runtime, kShapes);
                 ASSERT_OK(set.status());
                 for (uint64_t step = 0; step < 5; ++step) {
                   Values gradients = gradients_of(rank, step);
                   ASSERT_OK(run_to_its_end(*set.value(), gradients));
                   seen.results[rank].push_back(gradients);
                   const std::vector<uint64_t> all{0, 1, 2, 3, 4};
                   const Flags gone{uint8_t(step == 2), 0, uint8_t(step == 1), 0, 0};
                   ASSERT_OK(set.value()->optimizer_step(all, gone, PENSTOCK_OPTIMIZER_BEGINS));
                   ASSERT_OK(set.value()->optimizer_step(all, {}, PENSTOCK_OPTIMIZER_ENDS));
                   ASSERT_OK(set.value()->step_end(PENSTOCK_STEP_AS_SEEN));
                 }
               });
    return seen.results;
  };
  for (const char* compressor : {"topk", "acpsgd"}) {
    const auto expected = results_with("residual", compressor);
    const auto found = results_with("keep-c", compressor);
    for (uint32_t rank = 0; rank < 2; ++rank)
      for (uint64_t step = 0; step < 5; ++step)
        EXPECT_TRUE(same_bits(found[rank].at(step), expected[rank].at(step)))
            << compressor << " in step " << step;
  }
}

// ---- runs that do not forget ----

TEST(RunsThatDoNotForget, RefuseAndTheStepGoesOn) {
  const Scheme plain = scheme("topk", keys("topk", "residual"), kFew);
  const Trace expected = run(plain, 2, false);
  with_ranks(2, scheme_text(keys("topk", "residual"), "forget = false\n" + kFew),
             [&](Runtime& runtime, uint32_t rank) {
               auto set = make_set(runtime, kShapes);
               ASSERT_OK(set.status());
               for (uint64_t step = 0; step < kSteps; ++step) {
                 Values gradients = gradients_of(rank, step);
                 ASSERT_OK(run_to_its_end(*set.value(), gradients));
                 std::string saved;
                 const Status save = set.value()->save(saved);
                 const Status end = set.value()->step_end(PENSTOCK_STEP_FORGOTTEN);
                 for (const Status& refused : {save, end}) {
                   EXPECT_EQ(refused.code(), Code::failed_precondition);
                   EXPECT_NE(refused.message().find("forget = false"), std::string::npos)
                       << refused.message();
                 }
                 EXPECT_NE(end.message().find("'first'"), std::string::npos) << end.message();
                 ASSERT_OK(set.value()->step_end());
                 EXPECT_TRUE(same_bits(gradients, expected.results[rank][step])) << step;
                 ASSERT_OK(set.value()->save(saved = {}));
                 EXPECT_TRUE(saved == expected.saved[rank][step]) << step;
               }
             });
}

TEST(RunsThatDoNotForget, HaveNothingToRefuseWhereNothingIsKept) {
  with_ranks(2, scheme_text(keys("none", "none"), "forget = false\n"),
             [&](Runtime& runtime, uint32_t rank) {
               auto set = make_set(runtime, kShapes);
               ASSERT_OK(set.status());
               for (const uint32_t outcome : {PENSTOCK_STEP_FORGOTTEN, PENSTOCK_STEP_APPLIED}) {
                 Values gradients = gradients_of(rank, 0);
                 ASSERT_OK(run_to_its_end(*set.value(), gradients));
                 std::string saved;
                 ASSERT_OK(set.value()->save(saved));
                 ASSERT_OK(set.value()->step_end(outcome));
               }
               penstock_counters counters{};
               set.value()->counters(counters);
               EXPECT_EQ(counters.steps, 1u);
               EXPECT_EQ(counters.forgotten_steps, 1u);
             });
}

TEST(StepEnds, WithAnOutcomeThatIsNoneAreRefused) {
  with_ranks(1, scheme_text(keys("topk", "residual")), [&](Runtime& runtime, uint32_t rank) {
    auto set = make_set(runtime, kShapes);
    ASSERT_OK(set.status());
    Values gradients = gradients_of(rank, 0);
    ASSERT_OK(run_to_its_end(*set.value(), gradients));
    EXPECT_EQ(set.value()->step_end(3).code(), Code::invalid_argument);
    EXPECT_EQ(set.value()->optimizer_step({}, {}, 0).code(), Code::invalid_argument);
    EXPECT_EQ(set.value()->optimizer_step({}, {}, 4).code(), Code::invalid_argument);
    EXPECT_EQ(
        set.value()->optimizer_step(std::vector<uint64_t>{5}, {}, PENSTOCK_OPTIMIZER_BEGINS).code(),
        Code::invalid_argument);
    EXPECT_EQ(set.value()->results_gone(Flags(4)).code(), Code::invalid_argument);
    ASSERT_OK(set.value()->step_end());
  });
}

}  // namespace
}  // namespace penstock::forget_test
