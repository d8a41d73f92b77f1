// Routes hierarchical and shard: which ranks add which values, on hosts of equal and unequal size.

#include "core/set/training_testing.hpp"

#include <support/long.hpp>
#include <support/sanitized.hpp>

#include <vector>

namespace penstock::routes_test {
namespace {

using testing::descend;
using testing::Doubles;
using testing::make_set;
using testing::Problem;
using testing::run_step;
using testing::scheme_text;
using testing::train;
using testing::Values;
using testing::with_ranks;

// A vector and a matrix that are cut among owners, and some gradients that are too small for a cut.
const Problem kProblem({{"large", {9000}}, {"matrix", {96, 100}}, {"small", {33}}, {"empty", {0}}});

struct Layout {
  uint32_t size;
  const char* hosts;  // option of loopback
};
const std::vector<Layout> kEveryLayout = {
    {1, "0"},       {2, "0,1"},     {2, "0,0"},         {3, "0,0,1"},          {4, "0,0,1,1"},
    {4, "0,0,0,1"}, {4, "0,1,2,2"}, {6, "0,0,1,1,2,2"}, {8, "0,0,1,1,2,2,3,3"}};

const std::vector<Layout> kLayouts =
    test::kSanitized ? std::vector<Layout>{{2, "0,1"}, {3, "0,0,1"}} : kEveryLayout;

std::string on_route(const char* route, const std::string& keys, const Layout& layout,
                     const std::string& tables = "") {
  return scheme_text(fmt::format("scheduler = \"wfbp\"\nroute = \"{}\"\n{}", route, keys), tables) +
         fmt::format("[collective.loopback]\nhosts = \"{}\"\n", layout.hosts);
}

void expect_near(const std::vector<std::vector<Doubles>>& got,
                 const std::vector<std::vector<Doubles>>& wanted, double tolerance,
                 const std::string& what) {
  for (size_t rank = 0; rank < got.size(); ++rank) {
    ASSERT_EQ(got[rank].size(), wanted[rank].size()) << what;
    for (size_t step = 0; step < got[rank].size(); ++step)
      for (size_t g = 0; g < got[rank][step].size(); ++g)
        for (size_t i = 0; i < got[rank][step][g].size(); ++i)
          ASSERT_NEAR(got[rank][step][g][i], wanted[rank][step][g][i], tolerance)
              << what << ", rank " << rank << ", step " << step << ", gradient " << g << " at "
              << i;
  }
}

void expect_equal_on_all_ranks(const std::vector<std::vector<Doubles>>& trajectory,
                               const std::string& what) {
  for (size_t rank = 1; rank < trajectory.size(); ++rank)
    ASSERT_EQ(trajectory[rank], trajectory[0]) << what << ", rank " << rank;
}

TEST(Routes, EqualFlatWhereNothingIsLost) {
  for (const Layout& layout : kLayouts) {
    const auto flat = train(layout.size, on_route("flat", "", layout), kProblem, 4);
    const auto dense = train(layout.size, on_route("hierarchical", "", layout), kProblem, 4);
    expect_equal_on_all_ranks(dense, layout.hosts);
    expect_near(dense, flat, 1e-5, std::string("dense, hosts ") + layout.hosts);
    for (const char* route : {"hierarchical", "shard"}) {
      const std::string what = fmt::format("topk of all on {}, hosts {}", route, layout.hosts);
      const auto all = train(layout.size,
                             on_route(route, "compressor = \"topk\"\nmemory = \"residual\"", layout,
                                      "[compressor.topk]\ndensity = 1.0\n"),
                             kProblem, 4);
      expect_equal_on_all_ranks(all, what);
      expect_near(all, flat, 1e-5, what);
    }
  }
}

TEST(Routes, EndAlikeOnAllRanksUnderLossyMethods) {
  struct Method {
    const char* keys;
    bool shards;
    const char* tables = "";
  };
  const Method methods[] = {
      {"compressor = \"topk\"\nmemory = \"residual\"", true},
      {"compressor = \"efsign\"\nmemory = \"residual\"", true},
      {"compressor = \"qsgd\"\nmemory = \"none\"", true},
      {"compressor = \"signsgd\"\nmemory = \"none\"", true},
      {"compressor = \"threshold\"\nmemory = \"residual\"", true},
      {"compressor = \"dgc\"\nmemory = \"dgc\"\nowner_memory = \"residual\"", true},
      {"compressor = \"dgc\"\nmemory = \"dgc\"", false},
      {"compressor = \"powersgd\"\nmemory = \"residual\"", false},
      {"compressor = \"acpsgd\"\nmemory = \"residual\"", false},
      {"compressor = \"fp16\"\nmemory = \"residual\"", false},
      {"compressor = \"bf16\"\nmemory = \"none\"", true,
       "[compressor.bf16]\nrounding = \"stochastic\"\ncombine = \"gather\"\n"},
  };
  // Each method is on some of the layouts, and each layout has some of the methods.
  const size_t stride = test::kSanitized || test::is_long() ? 1 : 3;
  size_t turn = 0;
  for (const Layout& layout : kLayouts)
    for (const Method& method : methods) {
      if (turn++ % stride != 0) continue;
      for (const char* route : {"hierarchical", "shard"}) {
        const bool is_shard = std::string(route) == "shard";
        if (is_shard ? !method.shards : std::string(method.keys).find("owner") != std::string::npos)
          continue;
        expect_equal_on_all_ranks(
            train(layout.size, on_route(route, method.keys, layout, method.tables), kProblem, 6),
            fmt::format("{} on {}, hosts {}", method.keys, route, layout.hosts));
      }
    }
}

TEST(Routes, EndAlikeOnAllRanksUnderSigns) {
  for (const Layout& layout : kLayouts)
    for (const char* route : {"flat", "hierarchical", "shard"})
      expect_equal_on_all_ranks(
          train(layout.size,
                on_route(route, "compressor = \"topk\"\nmemory = \"residual\"", layout,
                         "[compressor.topk]\nvalue_type = \"sign\"\n"),
                kProblem, 4),
          fmt::format("signs on {}, hosts {}", route, layout.hosts));
}

std::string over_oktopk(const char* route, const Layout& layout, const std::string& tables) {
  std::string text =
      on_route(route, "compressor = \"topk\"\nmemory = \"residual\"\ntransport = \"loopback\"",
               layout, tables);
  const std::string transport = "collective = \"loopback\"";
  return text.replace(text.find(transport), transport.size(), "collective = \"oktopk\"");
}

TEST(Routes, HierarchicalTakesACompositeAcrossHosts) {
  for (const Layout& layout : kLayouts) {
    const std::string what = std::string("oktopk, hosts ") + layout.hosts;
    expect_equal_on_all_ranks(
        train(layout.size,
              over_oktopk("hierarchical", layout, "[compressor.topk]\ndensity = 0.05\n"), kProblem,
              6),
        what);
    const auto all = train(
        layout.size, over_oktopk("hierarchical", layout, "[compressor.topk]\ndensity = 1.0\n"),
        kProblem, 3);
    expect_near(all, train(layout.size, on_route("flat", "", layout), kProblem, 3), 1e-5, what);
  }
}

// The bytes that a rank sends to other ranks in a step.
double moved_in_a_step(const Layout& layout, const char* route, const std::string& compressor,
                       uint64_t elements) {
  constexpr uint64_t kSteps = 3;
  double moved = 0;
  with_ranks(layout.size, on_route(route, "compressor = \"" + compressor + "\"", layout),
             [&](Runtime& runtime, uint32_t rank) {
               auto set = make_set(runtime, {{"weight", {int64_t(elements)}}});
               ASSERT_OK(set.status());
               for (uint64_t step = 0; step < kSteps; ++step) {
                 Values gradients{std::vector<float>(elements, float(rank) + 0.5f)};
                 ASSERT_OK(run_step(*set.value(), gradients));
               }
               penstock_counters counters{};
               counters.struct_size = sizeof counters;
               set.value()->counters(counters);
               if (rank == 0) moved = double(counters.moved_bytes) / kSteps;
             });
  return moved;
}

TEST(RouteTraffic, OfShardDoesNotGrowWithTheRanks) {
  constexpr uint64_t kElements = 1 << 17;
  constexpr double kSigns = kElements / 8;
  const Layout two{2, "0,0"}, four{4, "0,0,0,0"}, eight{8, "0,0,0,0,0,0,0,0"};
  EXPECT_LT(moved_in_a_step(eight, "shard", "signsgd", kElements), 2.02 * kSigns);
  EXPECT_LT(moved_in_a_step(four, "shard", "signsgd", kElements), 2.02 * kSigns);
  EXPECT_LT(moved_in_a_step(two, "shard", "signsgd", kElements), 2.02 * kSigns);
  EXPECT_LT(moved_in_a_step(eight, "shard", "signsgd", kElements),
            0.27 * moved_in_a_step(eight, "flat", "signsgd", kElements));
}

// Four hosts with two ranks each. Within a host each rank sends half of the gradient to the other
// rank, and receives half of the result. Between hosts a rank exchanges only its half.
TEST(RouteTraffic, OfHierarchicalCrossesBetweenHostsOncePerHost) {
  constexpr uint64_t kElements = 1 << 17;
  constexpr double kDense = 4.0 * kElements, kSigns = kElements / 8;
  const Layout hosts{8, "0,0,1,1,2,2,3,3"};
  const double dense = moved_in_a_step(hosts, "hierarchical", "none", kElements) - kDense;
  const double signs = moved_in_a_step(hosts, "hierarchical", "signsgd", kElements) - kDense;
  EXPECT_NEAR(dense, 2 * 0.75 * kDense / 2, 0.01 * kDense);
  EXPECT_NEAR(signs, 3 * kSigns / 2, 0.02 * kSigns);
}

}  // namespace
}  // namespace penstock::routes_test
