// Random plans: with random cuts, buckets, orders, choices and deferred legs, and after any number
// of new plans, no part of a gradient is lost, no step hangs, and all ranks get equal bits. A last
// switch brings out the mass that memories still keep. Some steps are void or miss gradients of a
// rank; before some steps another step is forgotten. A seed draws 48 plans; tools/nightly runs
// all schemes, with more seeds.

#include "core/set/training_testing.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <support/long.hpp>
#include <support/sanitized.hpp>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>
#include <set>

namespace penstock::random_plans_test {
namespace {

using testing::Values;

const std::vector<testing::GradientShape> kShapes{
    {"weight", {12, 10}}, {"bias", {10}}, {"empty", {0}},      {"kernel", {4, 3, 3}},
    {"one", {1}},         {"gain", {7}},  {"table", {140, 31}}};
// The number of steps with gradients, with a new plan after each step; smaller under a thread
// sanitizer, which is slow.
constexpr uint64_t kDrawn = test::kThreadsSanitized ? 8 : 48;
constexpr uint64_t kSteps = kDrawn + 3;  // plus the steps that release the kept values

struct Case {
  std::string name;
  std::string keys;         // of [scheme]
  std::string tables = "";  // after [runtime]
  uint32_t ranks = 2;
  bool keeps = true;        // the memory keeps unsent values for later steps
  bool may_be_void = true;  // some steps are void
  bool leaves_out = false;  // plans may leave gradients out of phases
  uint32_t routes = 1u << PENSTOCK_ROUTE_FLAT;
  uint32_t flags = 0;
  std::string collective = "loopback";
  std::vector<uint32_t> hosts = {};  // host of each rank; empty: one host for all
  // The settings of a switch that releases every kept value.
  std::string flush = "scheme.compressor = \"none\", scheme.memory = \"none\"";

  bool adds_in_hosts() const { return (routes >> PENSTOCK_ROUTE_HIERARCHICAL & 1) != 0; }
};
void PrintTo(const Case& tested, std::ostream* out) {
  *out << tested.name;
}

// The events of a step, equal on every rank.
struct Fate {
  bool has_forgotten = false;  // another step came before it and was forgotten, without effect
  uint32_t void_rank = ~0u;    // one value of one gradient is not finite
  uint32_t absent_rank = ~0u;  // computes only every second gradient
  uint64_t void_gradient = 0;
  bool reloads = false;  // saves at the end and loads again
};

struct Draw {
  const Case& of;
  uint64_t seed;

  Fate fate(uint64_t step) const {
    test::Random random(seed * 7919 + step);
    Fate fate;
    if (step >= kDrawn) return fate;
    const auto rank = static_cast<uint32_t>(random.below(of.ranks));
    switch (random.below(8)) {
      case 0:
        fate.has_forgotten = true;
        break;
      case 1:
        fate.void_rank = of.may_be_void ? rank : ~0u;
        fate.void_gradient = random.below(2) == 0 ? 0 : 6;
        break;
      case 2:
        fate.absent_rank = rank;
        break;
      case 3:
        fate.reloads = true;
        break;
    }
    return fate;
  }
  // If one gradient on a host is not finite, the sum of the whole host is lost.
  bool loses(const Fate& fate, uint32_t rank) const {
    if (fate.void_rank == ~0u || !of.adds_in_hosts()) return rank == fate.void_rank;
    return of.hosts.empty() || of.hosts[rank] == of.hosts[fate.void_rank];
  }
  bool is_absent(const Fate& fate, uint32_t rank, size_t gradient) const {
    return rank == fate.absent_rank && gradient % 2 == seed % 2;
  }
  // Values are finite.
  std::vector<float> gradient(uint64_t step, uint32_t rank, size_t g) const {
    const size_t numel = testing::numel_of(kShapes[g]);
    if (step >= kDrawn) return std::vector<float>(numel);
    return test::heavy_tailed(numel, ((seed * 1000 + step) * 16 + rank) * 16 + g);
  }
};

std::string config_of(const Draw& draw) {
  const std::string program = std::filesystem::canonical("/proc/self/exe").parent_path().string();
  return fmt::format("[scheme]\ncollective = \"{}\"\nscheduler = \"random-plan-c\"\n{}\n",
                     draw.of.collective, draw.of.keys) +
         fmt::format(
             "[runtime]\ndeadline_s = 20\nlog_level = \"error\"\nallow_insecure_paths = "
             "true\nplugin_path = "
             "[\"{0}/plugins/random_plan\", \"{0}/plugins/fails\"]\n"
             "[scheduler.random-plan-c]\nseed = {1}\nroutes = {2}\nleaves_out = {3}\n{4}\n"
             "[[switch]]\nat_step = {5}\nset = {{ {6} }}\n"
             "[collective.loopback]\nhosts = \"{7}\"\n",
             program, draw.seed, draw.of.routes, draw.of.leaves_out, draw.of.tables, kDrawn,
             draw.of.flush, fmt::join(draw.of.hosts, ","));
}

// Runs a step without ending it. Each rank has its own order of gradients. `values` become results.
// `drawn` is the seed of the gradients: the rank, or a larger number for a step that is forgotten.
Status run_to_its_end(Set& set, const Draw& draw, const Fate& fate, uint64_t step, uint32_t rank,
                      uint32_t drawn, Values& values) {
  test::Random random((draw.seed * 1000 + step) * 16 + drawn);
  std::vector<size_t> order(kShapes.size());
  for (size_t g = 0; g < order.size(); ++g) order[g] = g;
  for (size_t g = order.size(); g > 1; --g) std::swap(order[g - 1], order[random.below(g)]);
  values.clear();
  for (size_t g = 0; g < order.size(); ++g) values.push_back(draw.gradient(step, drawn, g));
  if (rank == fate.void_rank) {
    auto& values_of = values[fate.void_gradient];
    values_of[random.below(values_of.size())] = std::numeric_limits<float>::quiet_NaN();
  }
  for (const size_t g : order) {
    const penstock_tensor tensor = testing::view_of(values[g]);
    PENSTOCK_TRY(draw.is_absent(fate, rank, g) ? set.gradient_absent(g, tensor)
                                               : set.gradient_ready(g, tensor));
  }
  if (set.defers()) PENSTOCK_TRY(set.backward_end());
  return set.wait_all();
}

Status run_drawn_step(Set& set, const Draw& draw, uint64_t step, uint32_t rank, Values& values) {
  const Fate fate = draw.fate(step);
  if (fate.has_forgotten) {
    const Fate lost{.void_rank = draw.of.may_be_void && step % 2 == 0 ? 0 : ~0u};
    PENSTOCK_TRY(run_to_its_end(set, draw, lost, step, rank, rank + 8, values));
    PENSTOCK_TRY(set.step_end(PENSTOCK_STEP_FORGOTTEN));
  }
  PENSTOCK_TRY(run_to_its_end(set, draw, fate, step, rank, rank, values));
  PENSTOCK_TRY(set.step_end());
  if (!fate.reloads) return {};
  std::string saved;
  PENSTOCK_TRY(set.save(saved));
  return set.load(saved);
}

std::string plan_of(Set& set) {
  const auto report = set.report();
  if (!report.ok()) return std::string(report.status().message());
  std::string text;
  const nlohmann::json parsed = nlohmann::json::parse(report.value());
  for (const auto& bucket : parsed["buckets"]) {
    text += bucket["route"].dump() + bucket["phase"].dump() + ":";
    for (const auto& item : bucket["items"])
      text += item["gradient"].dump() + item["first"].dump() + item["compressor"].dump();
  }
  return text;
}

// Results[rank][step].
using Results = std::vector<std::vector<Values>>;

Results run(const Draw& draw) {
  Results results(draw.of.ranks, std::vector<Values>(kSteps));
  std::set<std::string> plans;
  testing::with_ranks(draw.of.ranks, config_of(draw), [&](Runtime& runtime, uint32_t rank) {
    auto set = testing::make_set(runtime, kShapes, draw.of.flags);
    ASSERT_OK(set.status());
    for (uint64_t step = 0; step < kSteps; ++step) {
      if (rank == 0) plans.insert(plan_of(*set.value()));
      ASSERT_OK(run_drawn_step(*set.value(), draw, step, rank, results[rank][step])
                    .with_context(fmt::format("rank {}, step {}", rank, step)));
    }
  });
  EXPECT_GT(plans.size(), kDrawn * 3 / 4) << "hardly any plan was a new one";
  return results;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

void expect_equal_ranks(const Results& results) {
  for (size_t rank = 1; rank < results.size(); ++rank)
    for (uint64_t step = 0; step < kSteps; ++step)
      for (size_t g = 0; g < kShapes.size(); ++g)
        ASSERT_TRUE(same_bits(results[rank][step][g], results[0][step][g]))
            << "'" << kShapes[g].name << "' at step " << step << " differs between ranks 0 and "
            << rank;
}

// The balance of inputs and results of one gradient's elements, over all steps.
struct Books {
  std::vector<double> balance, magnitude;
};

void enter(Books& books, const Draw& draw, uint64_t step, size_t g, const Values& results) {
  const Fate fate = draw.fate(step);
  std::vector<std::vector<float>> gradients;
  for (uint32_t rank = 0; rank < draw.of.ranks; ++rank)
    gradients.push_back(draw.is_absent(fate, rank, g)
                            ? std::vector<float>(testing::numel_of(kShapes[g]))
                            : draw.gradient(step, rank, g));
  for (size_t e = 0; e < results[g].size(); ++e) {
    const bool is_void = std::isnan(results[g][e]);
    ASSERT_TRUE(!is_void || fate.void_rank != ~0u) << "a result is NaN, and no gradient was";
    for (uint32_t rank = 0; rank < draw.of.ranks; ++rank) {
      if (is_void && draw.loses(fate, rank)) continue;
      if (is_void && !draw.of.keeps) continue;
      books.balance[e] += gradients[rank][e];
      books.magnitude[e] += std::fabs(gradients[rank][e]);
    }
    if (is_void) continue;
    books.balance[e] -= double{results[g][e]} * draw.of.ranks;
    books.magnitude[e] += std::fabs(results[g][e]);
  }
}

// A kept value is rounded by a few additions per step. The elements of a gradient share scales and
// factors, so the tolerance depends on the largest element.
void expect_nothing_lost(const Draw& draw, const Results& results) {
  for (size_t g = 0; g < kShapes.size(); ++g) {
    const size_t numel = testing::numel_of(kShapes[g]);
    Books books{std::vector<double>(numel), std::vector<double>(numel)};
    for (uint64_t step = 0; step < kSteps; ++step)
      ASSERT_NO_FATAL_FAILURE(enter(books, draw, step, g, results[0][step]))
          << "'" << kShapes[g].name << "' at step " << step;
    const double largest =
        numel == 0 ? 0 : *std::max_element(books.magnitude.begin(), books.magnitude.end());
    for (size_t e = 0; e < numel; ++e)
      ASSERT_NEAR(books.balance[e], 0, double(kSteps) * draw.of.ranks * 0x1p-23 * largest)
          << "element " << e << " of '" << kShapes[g].name << "'";
  }
}

class RandomPlans : public ::testing::TestWithParam<Case> {};

TEST_P(RandomPlans, LoseNothingHangNeverAndGiveAllRanksTheSameBits) {
  const uint64_t n_seeds = test::is_long() ? 10 : 1;
  for (uint64_t seed = 1; seed <= n_seeds; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    const Draw draw{GetParam(), seed};
    const Results results = run(draw);
    if (HasFailure()) return;
    ASSERT_NO_FATAL_FAILURE(expect_equal_ranks(results));
    ASSERT_NO_FATAL_FAILURE(expect_nothing_lost(draw, results));
  }
}

const char* const kToNothing =
    "scheme.candidates = [\"none\"], scheme.compressor = \"none\", scheme.memory = \"none\"";

constexpr uint32_t kSplit = 1u << PENSTOCK_ROUTE_SPLIT;
constexpr uint32_t kHosts = 1u << PENSTOCK_ROUTE_HIERARCHICAL;
constexpr uint32_t kShard = 1u << PENSTOCK_ROUTE_SHARD;

const Case kCases[] = {
    {.name = "dense", .keys = "compressor = \"none\"", .ranks = 3, .keeps = false},
    {.name = "dense_split",
     .keys = "compressor = \"none\"\nroute = \"split\"",
     .ranks = 3,
     .keeps = false,
     .routes = kSplit,
     .flags = PENSTOCK_SET_DEFERRED_UPDATE},
    {.name = "halves_that_may_be_cut_anywhere",
     .keys = "compressor = \"fails\"\nmemory = \"residual\"",
     .ranks = 3},
    {.name = "halves_under_dgc",
     .keys = "compressor = \"fails\"\nmemory = \"dgc\"",
     .tables = "[memory.dgc]\nmomentum = 0.0\n"},
    {.name = "topk",
     .keys = "compressor = \"topk\"\nmemory = \"residual\"",
     .tables = "[compressor.topk]\ndensity = 0.1\n",
     .ranks = 4},
    {.name = "dgc",
     .keys = "compressor = \"dgc\"\nmemory = \"dgc\"",
     .tables = "[compressor.dgc]\ndensity = 0.1\n[memory.dgc]\nmomentum = 0.0\n"},
    {.name = "threshold",
     .keys = "compressor = \"threshold\"\nmemory = \"residual\"",
     .tables = "[compressor.threshold]\nthreshold = 0.5\n",
     .ranks = 3},
    {.name = "tbq", .keys = "compressor = \"tbq\"\nmemory = \"residual\"", .ranks = 3},
    {.name = "powersgd",
     .keys = "compressor = \"powersgd\"\nmemory = \"residual\"",
     .ranks = 3,
     .may_be_void = false},
    {.name = "acpsgd_left_out_of_phases",
     .keys = "compressor = \"acpsgd\"\nmemory = \"residual\"",
     .may_be_void = false,
     .leaves_out = true},
    {.name = "topk_on_what_refuses",
     .keys = "compressor = \"topk\"\nmemory = \"residual\"\ntransport = \"loopback\"",
     .tables = "[compressor.topk]\ndensity = 0.1\n",
     .ranks = 3,
     .collective = "oktopk",
     .flush = "compressor.topk.density = 1.0"},
    {.name = "dense_in_hosts",
     .keys = "route = \"hierarchical\"\ncompressor = \"none\"",
     .ranks = 4,
     .keeps = false,
     .routes = kHosts,
     .hosts = {0, 0, 0, 1}},
    {.name = "topk_in_hosts",
     .keys = "route = \"hierarchical\"\ncompressor = \"topk\"\nmemory = \"residual\"",
     .tables = "[compressor.topk]\ndensity = 0.1\n",
     .ranks = 4,
     .routes = kHosts,
     .hosts = {0, 0, 1, 1}},
    {.name = "halves_in_hosts",
     .keys = "route = \"hierarchical\"\ncompressor = \"fails\"\nmemory = \"residual\"",
     .ranks = 5,
     .routes = kHosts,
     .hosts = {0, 1, 0, 1, 1}},
    {.name = "acpsgd_in_hosts",
     .keys = "route = \"hierarchical\"\ncompressor = \"acpsgd\"\nmemory = \"residual\"",
     .ranks = 3,
     .may_be_void = false,
     .leaves_out = true,
     .routes = kHosts,
     .hosts = {0, 1, 1}},
    {.name = "topk_of_owners",
     .keys = "route = \"shard\"\ncompressor = \"topk\"\nmemory = \"residual\"",
     .tables = "[compressor.topk]\ndensity = 0.1\n",
     .ranks = 3,
     .routes = kShard,
     .flush = "compressor.topk.density = 1.0"},
    {.name = "threshold_of_owners",
     .keys = "route = \"shard\"\ncompressor = \"threshold\"\nmemory = \"residual\"",
     .tables = "[compressor.threshold]\nthreshold = 0.5\n",
     .ranks = 4,
     .routes = kShard | 2,
     .flush = "scheme.route = \"flat\", scheme.compressor = \"none\", scheme.memory = \"none\""},
    {.name = "dgc_of_owners_with_another_memory",
     .keys = "route = \"shard\"\ncompressor = \"dgc\"\nmemory = \"dgc\"\n"
             "owner_memory = \"residual\"",
     .tables = "[compressor.dgc]\ndensity = 0.1\n[memory.dgc]\nmomentum = 0.0\n",
     .routes = kShard,
     .flush = "compressor.dgc.density = 1.0"},
    {.name = "routes_in_turn",
     .keys = "compressor = \"topk\"\nmemory = \"residual\"",
     .tables = "[compressor.topk]\ndensity = 0.1\n",
     .ranks = 4,
     .may_be_void = false,
     .routes = 2 | kHosts | kShard,
     .hosts = {0, 0, 1, 1}},
    {.name = "candidates",
     .keys = "compressor = \"topk\"\nmemory = \"residual\"\n"
             "candidates = [\"topk\", \"fails\", \"none\"]",
     .ranks = 3,
     .may_be_void = false,
     .flush = kToNothing},
    {.name = "candidates_under_dgc",
     .keys = "compressor = \"topk\"\nmemory = \"dgc\"\n"
             "candidates = [\"topk\", \"fails\", \"none\"]",
     .tables = "[memory.dgc]\nmomentum = 0.0\n",
     .may_be_void = false,
     .flush = kToNothing},
    {.name = "candidates_that_keep",
     .keys = "compressor = \"topk\"\nmemory = \"residual\"\n"
             "candidates = [\"topk\", \"fails\"]",
     .ranks = 3,
     .flush = kToNothing},
    {.name = "switches",
     .keys = "compressor = \"topk\"\nmemory = \"residual\"",
     .tables = "[memory.dgc]\nmomentum = 0.0\n"
               "[[switch]]\nat_step = 11\nset = { scheme.compressor = \"fails\" }\n"
               "[[switch]]\nat_step = 21\nset = { scheme.memory = \"dgc\" }\n"
               "[[switch]]\nat_step = 31\nset = { scheme.memory = \"residual\", "
               "scheme.compressor = \"threshold\" }\n",
     .ranks = 3},
};

std::vector<Case> share_of_cases() {
  std::vector<Case> share;
  const size_t stride = test::kThreadsSanitized ? 13
                        : test::kSanitized      ? 8
                        : test::is_long()       ? 1
                                                : 5;
  for (size_t i = 0; i < std::size(kCases); i += stride) share.push_back(kCases[i]);
  return share;
}

INSTANTIATE_TEST_SUITE_P(All, RandomPlans, ::testing::ValuesIn(share_of_cases()),
                         [](const auto& tested) { return tested.param.name; });

}  // namespace
}  // namespace penstock::random_plans_test
