// Sets in which only one rank needs each result. So the sharded parts need no exchange of results.

#include "core/set/training_testing.hpp"
#include "tests/support/worlds.hpp"

#include <nlohmann/json.hpp>

#include <cstring>
#include <limits>

namespace penstock::results_at_owners_test {
namespace {

using testing::GradientShape;
using testing::make_set;
using testing::Problem;
using testing::run_step;
using testing::scheme_text;
using testing::Values;
using testing::with_ranks;

constexpr uint32_t kAtOwners = PENSTOCK_SET_RESULT_AT_OWNER;
constexpr uint64_t kSteps = 7;

// Two gradients of each rank, one large and one small.
using Shapes = std::vector<std::vector<int64_t>>;
const Shapes kVectors = {{2000}, {33}};
const Shapes kMatrices = {{40, 50}, {33}};

std::vector<GradientShape> shapes_of(uint32_t size, const Shapes& of_each = kVectors) {
  std::vector<GradientShape> shapes;
  for (uint32_t owner = 0; owner < size; ++owner)
    for (const std::vector<int64_t>& shape : of_each)
      shapes.push_back({fmt::format("part {} of {}", owner, shape.front()), shape, PENSTOCK_FLOAT32,
                        PENSTOCK_NO_BUCKET, owner});
  return shapes;
}

// The contents of each rank's gradients after each step: [rank][step]. One value of rank 0 is not
// finite in step 2, and step 4 is forgotten. Before step `resume_at` the run ends, and another run
// loads its state.
std::vector<std::vector<Values>> results(uint32_t size, const std::string& scheme, uint32_t flags,
                                         uint64_t resume_at = kSteps,
                                         const Shapes& of_each = kVectors) {
  const auto shapes = shapes_of(size, of_each);
  const Problem problem(shapes);
  std::vector<std::vector<Values>> found(size);
  std::vector<std::string> saved(size);
  for (const auto& [from, to] : {std::pair(uint64_t{0}, resume_at), std::pair(resume_at, kSteps)}) {
    if (from == to) continue;
    with_ranks(size, scheme, [&](Runtime& runtime, uint32_t rank) {
      auto set = make_set(runtime, shapes, flags);
      ASSERT_OK(set.status());
      if (from != 0) ASSERT_OK(set.value()->load(saved[rank]));
      for (uint64_t step = from; step < to; ++step) {
        Values gradients = problem.gradients(problem.start(), rank, step);
        if (step == 2 && rank == 0) gradients[1][5] = std::numeric_limits<float>::infinity();
        ASSERT_OK(run_step(*set.value(), gradients,
                           step == 4 ? PENSTOCK_STEP_FORGOTTEN : PENSTOCK_STEP_APPLIED));
        found[rank].push_back(gradients);
      }
      ASSERT_OK(set.value()->save(saved[rank]));
    });
  }
  return found;
}

// Both must have equal bits where both have a result. NaN is the result of a void bucket.
void expect_owners_have(const std::vector<std::vector<Values>>& got,
                        const std::vector<std::vector<Values>>& wanted, const std::string& what) {
  for (size_t rank = 0; rank < got.size(); ++rank) {
    ASSERT_EQ(got[rank].size(), wanted[rank].size()) << what;
    for (size_t step = 0; step < got[rank].size(); ++step)
      for (size_t g = 2 * rank; g < 2 * rank + 2; ++g) {
        const auto& mine = got[rank][step][g];
        const auto& theirs = wanted[rank][step][g];
        ASSERT_EQ(std::memcmp(mine.data(), theirs.data(), mine.size() * sizeof(float)), 0)
            << what << ", rank " << rank << ", step " << step << ", gradient " << g;
      }
  }
}

struct Method {
  const char* keys;
  const char* tables = "";
  bool is_plain = false;
};
const Method kMethods[] = {
    {"compressor = \"topk\"\nmemory = \"residual\"", "[compressor.topk]\ndensity = 0.02\n"},
    {"compressor = \"topk\"\nmemory = \"residual\"", "[compressor.topk]\ndensity = 1.0\n"},
    {"compressor = \"efsign\"\nmemory = \"residual\""},
    {"compressor = \"qsgd\"\nmemory = \"none\""},
    {"compressor = \"tbq\"\nmemory = \"residual\""},
    {"compressor = \"threshold\"\nmemory = \"residual\""},
    {"compressor = \"none\"\nmemory = \"none\"", "", true},
    {"compressor = \"fp16\"\nmemory = \"residual\""},
    {"compressor = \"bf16\"\nmemory = \"none\"", "", true},
    {"compressor = \"fp16\"\nmemory = \"residual\"",
     "[compressor.fp16]\nrounding = \"stochastic\"\n"},
    {"compressor = \"bf16\"\nmemory = \"none\"",
     "[compressor.bf16]\nrounding = \"stochastic\"\ncombine = \"gather\"\n"},
    {"compressor = \"randomk\"\nmemory = \"residual\"", "[compressor.randomk]\ndensity = 0.1\n"},
    {"compressor = \"covap\"\nmemory = \"residual\"", ""},
    {"compressor = \"powersgd\"\nmemory = \"residual\"", "", true},  // vectors travel uncompressed
};

class ResultsAtOwners : public ::testing::TestWithParam<uint32_t> {};
INSTANTIATE_TEST_SUITE_P(Sizes, ResultsAtOwners, test::worlds({1, 2, 3, 4, 8}, {1, 3, 8}));

// On route flat a plain gradient alone in its bucket is never void (decision 0003), so plain
// methods have only scheduler fusion. Outside of long runs a method takes the schedulers in turn
// with the number of ranks. The numbers below 8 already have every kind of cut, so only a few
// methods are taken on 8 ranks.
TEST_P(ResultsAtOwners, AreThoseThatEveryRankHasOnRouteFlat) {
  const uint32_t size = GetParam();
  const size_t stride = !test::is_long() && size == 8 ? 4 : 1;
  for (const size_t at : {0, 1})
    for (size_t i = 0; i < std::size(kMethods); i += stride) {
      const Method& method = kMethods[i];
      const bool is_in_turn = method.is_plain || test::is_long() || at == (i / stride + size) % 2;
      const std::string_view scheduler = at == 0 ? "wfbp" : "fusion";
      if (!is_in_turn || (method.is_plain && scheduler == "wfbp")) continue;
      const std::string scheme =
          scheme_text(fmt::format("scheduler = \"{}\"\n{}", scheduler, method.keys), method.tables);
      expect_owners_have(results(size, scheme, kAtOwners), results(size, scheme, 0),
                         fmt::format("{} with {}", method.keys, scheduler));
    }
}

TEST_P(ResultsAtOwners, ResumeToTheBit) {
  const std::string scheme =
      scheme_text(fmt::format("scheduler = \"wfbp\"\n{}", kMethods[0].keys), kMethods[0].tables);
  expect_owners_have(results(GetParam(), scheme, kAtOwners, 3),
                     results(GetParam(), scheme, kAtOwners), "resumed");
}

// Every rank needs the sums of factors, because every rank starts the next step from them.
TEST_P(ResultsAtOwners, OfMatricesInFactorsAreThoseOfRouteFlatAndResumeToTheBit) {
  const uint32_t size = GetParam();
  for (const char* name : {"powersgd", "powersgd-alternating", "acpsgd"}) {
    const std::string scheme = scheme_text(
        fmt::format("scheduler = \"fusion\"\ncompressor = \"{}\"\nmemory = \"residual\"", name),
        fmt::format("[compressor.{}]\nrank = 2\n", name));
    const auto found = results(size, scheme, kAtOwners, kSteps, kMatrices);
    expect_owners_have(found, results(size, scheme, 0, kSteps, kMatrices), name);
    expect_owners_have(results(size, scheme, kAtOwners, 3, kMatrices), found,
                       fmt::format("{} resumed", name));
  }
}

// Bytes that one of four ranks has moved, and would have moved uncompressed, after a step with
// gradients of kNumel elements, one for each rank.
constexpr uint32_t kSize = 4;
constexpr int64_t kNumel = 1 << 16;
void expect_moved(const std::string& keys, double payload_bytes) {
  std::vector<GradientShape> shapes;
  for (uint32_t owner = 0; owner < kSize; ++owner)
    shapes.push_back(
        {fmt::format("part {}", owner), {kNumel}, PENSTOCK_FLOAT32, PENSTOCK_NO_BUCKET, owner});
  const std::string scheme = scheme_text("scheduler = \"fusion\"\n" + keys);
  with_ranks(kSize, scheme, [&](Runtime& runtime, uint32_t) {
    auto set = make_set(runtime, shapes, kAtOwners);
    ASSERT_OK(set.status());
    Values gradients(kSize, std::vector<float>(kNumel, 1.0f));
    ASSERT_OK(run_step(*set.value(), gradients));
    penstock_counters counters{};
    set.value()->counters(counters);
    EXPECT_NEAR(double(counters.moved_bytes), (kSize - 1) * payload_bytes, 0.01 * payload_bytes);
    // Uncompressed, the route moves only a reduce-scatter.
    EXPECT_NEAR(double(counters.dense_moved_bytes), (kSize - 1) * 4.0 * kNumel, 16);
    auto report = set.value()->report();
    ASSERT_OK(report.status());
    const auto planned = nlohmann::json::parse(report.value())["planned"];
    const double moved = planned["moved_bytes_per_step"];
    EXPECT_NEAR(moved, double(counters.moved_bytes), 0.01 * payload_bytes);
  });
}

TEST(ResultsAtOwnersTraffic, IsOnePayloadPerOwner) {
  expect_moved("compressor = \"signsgd\"\nmemory = \"none\"", double(kNumel) / 8);
}

TEST(ResultsAtOwnersTraffic, OfSumsIsThatOfAReduceScatter) {
  expect_moved("compressor = \"fp16\"\nmemory = \"residual\"", 2.0 * kNumel);
  expect_moved("compressor = \"none\"\nmemory = \"none\"", 4.0 * kNumel);
}

void expect_refused(const std::string& keys, const std::string& sentence,
                    std::vector<GradientShape> shapes = shapes_of(2)) {
  with_ranks(2, scheme_text("scheduler = \"wfbp\"\n" + keys), [&](Runtime& runtime, uint32_t) {
    const auto set = make_set(runtime, shapes, kAtOwners);
    ASSERT_FALSE(set.ok()) << keys;
    EXPECT_NE(set.status().message().find(sentence), std::string::npos) << set.status().message();
  });
}

TEST(ResultsAtOwnersFit, RefusesOtherRoutes) {
  expect_refused("route = \"hierarchical\"\ncompressor = \"topk\"", "names route \"hierarchical\"");
}

TEST(ResultsAtOwnersFit, RefusesMemoriesThatEndAStepOnEveryRank) {
  expect_refused("compressor = \"dgc\"\nmemory = \"dgc\"",
                 "ends a step with the result on every rank, but each result");
}

TEST(ResultsAtOwnersFit, RefusesAnOwnerThatIsNotThere) {
  expect_refused("compressor = \"topk\"", "belongs to rank 2, which is not among the 2 ranks",
                 {{"part", {64}, PENSTOCK_FLOAT32, PENSTOCK_NO_BUCKET, 2}});
}

}  // namespace
}  // namespace penstock::results_at_owners_test
