// Gathers in slices of ranks: with a small `arena_limit_mb` every method gives the bits that it
// gives with all payloads at once, on every rank and in every step.

#include "core/set/testing.hpp"

#include <testing/data.hpp>

#include <nlohmann/json.hpp>

#include <cmath>
#include <limits>
#include <numeric>

namespace penstock::slices_test {
namespace {

using testing::make_set;
using testing::run_step;
using testing::with_ranks;

using Values = std::vector<std::vector<float>>;

constexpr uint64_t kSteps = 5, kForgotten = 1, kVoid = 3;

// Top-k of all entries takes 12 bytes an element: an index, its uncoded copy and a float. So the
// ballast alone decides how many ranks fit in one MiB: the own payload, and `at_once` of the
// others.
constexpr double kBallastBytes = 12;
int64_t ballast_for(uint32_t at_once) {
  return static_cast<int64_t>((1 << 20) / (1.4 + at_once) / kBallastBytes);
}

std::vector<testing::GradientShape> shapes_for(uint32_t at_once) {
  return {{"first", {24, 16}}, {"bias", {24}},    {"empty", {0}},
          {"second", {9, 40}}, {"vote", {5, 67}}, {"ballast", {ballast_for(at_once)}}};
}

struct Method {
  const char* name;
  const char* keys;
  const char* tables = "";
};

void PrintTo(const Method& method, std::ostream* out) {
  *out << method.name;
}

// `more` has keys of [runtime]. A vote is never sliced, and a vector is summed.
std::string scheme_of(const Method& method, uint64_t limit_mb, const std::string& more = "") {
  return testing::scheme_text(
      method.keys, fmt::format("arena_limit_mb = {}\nlog_level = \"error\"\n{}\n"
                               "[compressor.all]\nplugin = \"topk\"\ndensity = 1.0\n"
                               "[[rule]]\nmatch.name = \"ballast\"\ncompressor = \"all\"\n"
                               "memory = \"none\"\n"
                               "[[rule]]\nmatch.name = \"bias\"\ncompressor = \"none\"\n"
                               "[[rule]]\nmatch.name = \"vote\"\ncompressor = \"signsgd\"\n"
                               "memory = \"none\"\n{}",
                               limit_mb, more, method.tables));
}

Values gradients_of(const std::vector<testing::GradientShape>& shapes, uint32_t rank,
                    uint64_t step) {
  Values gradients;
  for (size_t g = 0; g < shapes.size(); ++g) {
    const auto& shape = shapes[g].shape;
    const int64_t numel =
        std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
    gradients.push_back(test::heavy_tailed(static_cast<size_t>(numel), 100 * step + 10 * rank + g));
  }
  return gradients;
}

struct Outcome {
  std::vector<std::vector<Values>> results;  // [rank][step]
  size_t exchanges = 0;                      // the most stages of a bucket with this name
};

// Steps of which one is void (the last rank has an infinity) and one is forgotten.
Outcome run(uint32_t size, const std::string& scheme,
            const std::vector<testing::GradientShape>& shapes) {
  Outcome outcome;
  outcome.results.resize(size);
  with_ranks(size, scheme, [&](Runtime& runtime, uint32_t rank) {
    auto set = make_set(runtime, shapes);
    ASSERT_OK(set.status());
    for (uint64_t step = 0; step < kSteps; ++step) {
      Values gradients = gradients_of(shapes, rank, step);
      if (step == kVoid && rank + 1 == size)
        gradients[0][7] = std::numeric_limits<float>::infinity();
      ASSERT_OK(run_step(*set.value(), gradients,
                         step == kForgotten ? PENSTOCK_STEP_FORGOTTEN : PENSTOCK_STEP_APPLIED));
      outcome.results[rank].push_back(std::move(gradients));
    }
    if (rank != 0) return;
    const auto report = nlohmann::json::parse(set.value()->report().value());
    for (const auto& bucket : report.at("buckets"))
      outcome.exchanges = std::max<size_t>(
          outcome.exchanges, std::count(bucket.at("program").begin(), bucket.at("program").end(),
                                        nlohmann::json("exchange")));
  });
  return outcome;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

void expect_same(const Outcome& found, const Outcome& expected) {
  for (size_t rank = 0; rank < expected.results.size(); ++rank) {
    ASSERT_EQ(found.results[rank].size(), kSteps);
    for (uint64_t step = 0; step < kSteps; ++step)
      for (size_t g = 0; g < expected.results[rank][step].size(); ++g)
        ASSERT_TRUE(same_bits(found.results[rank][step][g], expected.results[rank][step][g]))
            << "rank " << rank << " step " << step << " gradient " << g;
  }
  ASSERT_TRUE(std::isnan(found.results[0][kVoid][0][0]));
  ASSERT_FALSE(std::isnan(found.results[0][kVoid + 1][0][0]));
}

// Ranks, and how many of them come at once at most.
struct World {
  uint32_t size, at_once, slices;
};
constexpr World kWorlds[] = {{2, 1, 2}, {3, 2, 2}, {4, 3, 2}, {5, 2, 3}, {8, 3, 3}, {8, 1, 8}};

const Method kSparse = {"topk", "compressor = \"topk\"\nmemory = \"residual\"",
                        "[compressor.topk]\ndensity = 0.05\nvalue_type = \"fp32\"\n"};

TEST(Slices, HaveTheBitsOfOneGatherInEveryWorld) {
  for (const World& world : kWorlds) {
    SCOPED_TRACE(fmt::format("{} ranks, {} at once", world.size, world.at_once));
    const auto shapes = shapes_for(world.at_once);
    const Outcome whole = run(world.size, scheme_of(kSparse, 4096), shapes);
    const Outcome sliced = run(world.size, scheme_of(kSparse, 1), shapes);
    EXPECT_EQ(whole.exchanges, 1u);
    EXPECT_EQ(sliced.exchanges, world.slices);
    expect_same(sliced, whole);
  }
}

TEST(Slices, AreNotMadeForARankAlone) {
  EXPECT_EQ(run(1, scheme_of(kSparse, 1), shapes_for(1)).exchanges, 1u);
}

TEST(Slices, WorkOnTheRouteThroughHosts) {
  const std::string tables =
      fmt::format("{}[collective.loopback]\nhosts = \"0,0,1,1,2\"", kSparse.tables);
  const Method through = {"topk",
                          "compressor = \"topk\"\nmemory = \"residual\"\nroute = \"hierarchical\"",
                          tables.c_str()};
  const auto shapes = shapes_for(2);
  const Outcome whole = run(5, scheme_of(through, 4096), shapes);
  const Outcome sliced = run(5, scheme_of(through, 1), shapes);
  EXPECT_EQ(sliced.exchanges, whole.exchanges + 1) << "three hosts in slices of two";
  expect_same(sliced, whole);
}

// Under `strict` both runs ask all ranks first whether a bucket is void. So the bits are equal also
// where a payload that was given back would be rounded.
class SlicedMethod : public ::testing::TestWithParam<Method> {};

TEST_P(SlicedMethod, HasTheBitsOfOneGather) {
  const std::string strict = "nonfinite = \"strict\"\n" + testing::test_plugins({"shared_scale"});
  const auto shapes = shapes_for(2);
  const Outcome whole = run(5, scheme_of(GetParam(), 4096, strict), shapes);
  const Outcome sliced = run(5, scheme_of(GetParam(), 1, strict), shapes);
  EXPECT_EQ(sliced.exchanges % 3, 0u);
  EXPECT_EQ(sliced.exchanges, 3 * whole.exchanges);
  expect_same(sliced, whole);
}

#define PENSTOCK_KEPT(name) \
  { #name, "compressor = \"" #name "\"\nmemory = \"residual\"" }
const Method kMethods[] = {
    {"topk_auto", "compressor = \"topk\"\nmemory = \"residual\"",
     "[compressor.topk]\ndensity = 0.05\n"},
    {"topk_signs", "compressor = \"topk\"\nmemory = \"residual\"",
     "[compressor.topk]\ndensity = 0.05\nvalue_type = \"sign\"\n"},
    {"topk_int8", "compressor = \"topk\"\nmemory = \"residual\"",
     "[compressor.topk]\ndensity = 0.05\nvalue_type = \"int8\"\n"},
    {"topk_of_buckets", "compressor = \"topk\"\nmemory = \"residual\"",
     "[compressor.topk]\ndensity = 0.05\nscope = \"bucket\"\n"},
    {"topk_shifted", "compressor = \"topk\"\nmemory = \"ef21\"",
     "[compressor.topk]\ndensity = 0.05\n"},
    {"dgc", "compressor = \"dgc\"\nmemory = \"dgc\"", "[compressor.dgc]\ndensity = 0.05\n"},
    {"shared_scale", "compressor = \"shared-scale\"\nmemory = \"residual\""},
    PENSTOCK_KEPT(threshold),
    PENSTOCK_KEPT(gaussiank),
    PENSTOCK_KEPT(redsync),
    PENSTOCK_KEPT(sidco),
    PENSTOCK_KEPT(adtopk),
    PENSTOCK_KEPT(adaq),
    PENSTOCK_KEPT(adacomp),
    PENSTOCK_KEPT(blocktopk),
    PENSTOCK_KEPT(efsign),
    PENSTOCK_KEPT(onebit),
    PENSTOCK_KEPT(qsgd),
    PENSTOCK_KEPT(terngrad),
    PENSTOCK_KEPT(natural),
    PENSTOCK_KEPT(int8),
    PENSTOCK_KEPT(maxmin),
    PENSTOCK_KEPT(tbq),
    PENSTOCK_KEPT(inceptionn),
};
#undef PENSTOCK_KEPT
INSTANTIATE_TEST_SUITE_P(Methods, SlicedMethod, ::testing::ValuesIn(kMethods),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(Slices, AreNoHelpIfOneRankAloneIsTooMuch) {
  with_ranks(2, scheme_of(kSparse, 1), [&](Runtime& runtime, uint32_t) {
    const auto set = make_set(runtime, {{"ballast", {70'000}}});
    ASSERT_FALSE(set.ok());
    for (const char* words : {"payloads of 2 ranks need 1.6 MiB", "runtime.arena_limit_mb = 1,",
                              "set arena_limit_mb = 2 or more"})
      EXPECT_NE(set.status().message().find(words), std::string::npos) << set.status().message();
  });
}

// All payloads of a vote are decoded in one call, so they all need room.
TEST(Slices, AreNotMadeOfVotes) {
  const Method vote = {"signsgd", "compressor = \"signsgd\"\nmemory = \"none\""};
  with_ranks(8, scheme_of(vote, 1), [&](Runtime& runtime, uint32_t) {
    const auto set = make_set(runtime, {{"vote", {1'000'000}}});
    ASSERT_FALSE(set.ok());
    EXPECT_NE(set.status().message().find("cannot come in slices"), std::string::npos)
        << set.status().message();
  });
}

}  // namespace
}  // namespace penstock::slices_test
