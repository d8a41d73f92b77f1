// Means of 16-bit floats, for 16-bit gradients and for compressed float32 gradients. A mean must be
// right if it fits the type, also if the sum does not, on every route and with equal bits on all
// ranks. The oracle is the mean in float64 of the sent values, rounded once.

#include "core/set/testing.hpp"

#include <support/half.hpp>
#include <testing/data.hpp>

#include <cmath>
#include <map>

namespace penstock::means_test {
namespace {

using testing::GradientShape;
using testing::make_set;
using testing::scheme_text;
using testing::with_ranks;

struct Format {
  const char* compressor;
  uint32_t dtype;
  float large, small;  // 6 * `large` needs float32; `small` is near the smallest number
  uint16_t (*bits)(float);
  float (*value)(uint16_t);
  float rounded(float x) const { return value(bits(x)); }
};
const Format kFormats[] = {
    {"fp16", PENSTOCK_FLOAT16, 40000, 1e-6f, test::to_float16, test::from_float16},
    {"bf16", PENSTOCK_BFLOAT16, 4e37f, 1e-30f, test::to_bfloat16, test::from_bfloat16}};

struct Layout {
  uint32_t size;
  const char* hosts;
};
const Layout kLayouts[] = {{1, "0"},       {2, "0,1"},     {3, "0,0,1"},
                           {4, "0,0,1,1"}, {4, "0,0,0,1"}, {6, "0,0,1,1,2,2"}};
const char* const kRoutes[] = {"flat", "split", "shard", "hierarchical"};

using Values = std::vector<std::vector<float>>;  // [gradient][element]
const std::vector<uint64_t> kNumels{1000, 7, 1, 70'000};

// Large, small and medium values of either sign. The larger values are equal on all ranks.
Values gradients_of(const Format& format, uint32_t rank) {
  Values gradients;
  for (size_t g = 0; g < kNumels.size(); ++g) {
    test::Random random(1 + g), own(100 * rank + g);
    auto& values = gradients.emplace_back(kNumels[g]);
    for (uint64_t i = 0; i < values.size(); ++i) {
      const float sign = random.below(2) == 0 ? 1.0f : -1.0f;
      const float kinds[] = {sign * format.large, sign * format.small,
                             static_cast<float>(own.gauss()),
                             sign * format.large * (static_cast<float>(own.below(64)) / 64)};
      values[i] = kinds[(i + g) % std::size(kinds)];
    }
  }
  return gradients;
}

// The bits of each element of a mean.
using Bits = std::vector<std::vector<uint16_t>>;

// What the oracle knows of one element.
struct Expected {
  double mean = 0;     // of the sent values
  double largest = 0;  // of the gradients' absolute values
  float rounded = 0;   // the mean, rounded once
};

// The gradients of the ranks, and the oracle of their results: [gradient][element].
struct Problem {
  std::vector<Values> gradients;
  std::vector<std::vector<Expected>> expected;
};

Problem make_problem(const Format& format, uint32_t size) {
  Problem made;
  for (uint32_t rank = 0; rank < size; ++rank) made.gradients.push_back(gradients_of(format, rank));
  for (size_t g = 0; g < kNumels.size(); ++g) {
    auto& of_gradient = made.expected.emplace_back(kNumels[g]);
    for (uint64_t i = 0; i < kNumels[g]; ++i) {
      Expected& one = of_gradient[i];
      for (const Values& of_rank : made.gradients) {
        one.mean += format.rounded(of_rank[g][i]);
        one.largest = std::max(one.largest, std::fabs(double{of_rank[g][i]}));
      }
      one.mean /= size;
      one.rounded = format.rounded(static_cast<float>(one.mean));
    }
  }
  return made;
}

// Made once for all routes, because drawing takes longer than a step.
const Problem& problem_of(const Format& format, uint32_t size) {
  static std::map<std::pair<uint32_t, uint32_t>, Problem> all;
  const std::pair key(format.dtype, size);
  if (!all.contains(key)) all[key] = make_problem(format, size);
  return all[key];
}

// A step of gradients that are stored as `T`. The results replace the gradients.
template <typename T>
void run_step_of(Set& set, std::vector<std::vector<T>>& gradients, uint32_t dtype) {
  for (size_t g = gradients.size(); g-- > 0;) {
    const auto numel = static_cast<int64_t>(gradients[g].size());
    penstock_tensor tensor{};
    tensor.struct_size = sizeof tensor;
    tensor.data = gradients[g].data();
    tensor.shape = &numel;
    tensor.n_dims = 1;
    tensor.numel = gradients[g].size();
    tensor.dtype = dtype;
    tensor.device_type = PENSTOCK_DEVICE_CPU;
    ASSERT_OK(set.gradient_ready(g, tensor));
  }
  if (set.defers()) ASSERT_OK(set.backward_end());
  ASSERT_OK(set.wait_all());
  ASSERT_OK(set.step_end(true));
}

std::vector<GradientShape> shapes_of(const Values& gradients, uint32_t dtype) {
  std::vector<GradientShape> shapes;
  for (size_t g = 0; g < gradients.size(); ++g)
    shapes.push_back({fmt::format("g{}", g), {static_cast<int64_t>(gradients[g].size())}, dtype});
  return shapes;
}

// Keys of [scheme].
std::string on_route(std::string_view route, std::string_view scheduler = "wfbp") {
  return fmt::format("scheduler = \"{}\"\nroute = \"{}\"\n", route == "split" ? "dear" : scheduler,
                     route);
}

// The results of each rank after a step with gradients_of. With `halves` the gradients are stored
// in the 16-bit type and travel uncompressed. Otherwise they are float32 and have the compressor.
std::vector<Values> results(const Format& format, const Layout& layout, const char* route,
                            const char* scheduler, bool halves) {
  const Problem& problem = problem_of(format, layout.size);
  std::vector<Values> all(layout.size);
  const std::string scheme =
      scheme_text(fmt::format("{}compressor = \"{}\"", on_route(route, scheduler),
                              halves ? "none" : format.compressor)) +
      fmt::format("[collective.loopback]\nhosts = \"{}\"\n", layout.hosts);
  with_ranks(layout.size, scheme, [&](Runtime& runtime, uint32_t rank) {
    Values values = problem.gradients[rank];
    const uint32_t dtype = halves ? format.dtype : uint32_t{PENSTOCK_FLOAT32};
    auto set = make_set(runtime, shapes_of(values, dtype), PENSTOCK_SET_DEFERRED_UPDATE);
    ASSERT_OK(set.status());
    if (!halves) {
      run_step_of(*set.value(), values, dtype);
    } else {
      Bits bits;
      for (const auto& gradient : values) {
        bits.emplace_back();
        for (const float value : gradient) bits.back().push_back(format.bits(value));
      }
      run_step_of(*set.value(), bits, dtype);
      for (size_t g = 0; g < values.size(); ++g)
        for (size_t i = 0; i < values[g].size(); ++i) values[g][i] = format.value(bits[g][i]);
    }
    all[rank] = values;
  });
  return all;
}

void expect_means(const Format& format, const Layout& layout, const char* route,
                  const char* scheduler, bool halves) {
  const std::string what = fmt::format("{} on {}, hosts {}, {} by {}", format.compressor, route,
                                       layout.hosts, halves ? "halves" : "floats", scheduler);
  const Problem& problem = problem_of(format, layout.size);
  const std::vector<Values> got = results(format, layout, route, scheduler, halves);
  // On route hierarchical the sum of each host is rounded too.
  const bool is_rounded_once = std::string_view(route) != "hierarchical";
  for (uint32_t rank = 1; rank < layout.size; ++rank)
    ASSERT_EQ(got[rank], got[0]) << what << ", rank " << rank;
  for (size_t g = 0; g < kNumels.size(); ++g)
    for (uint64_t i = 0; i < kNumels[g]; ++i) {
      const Expected& wanted = problem.expected[g][i];
      if (is_rounded_once) {
        ASSERT_EQ(got[0][g][i], wanted.rounded) << what << ", gradient " << g << " at " << i;
        continue;
      }
      const double unit = format.dtype == PENSTOCK_FLOAT16 ? 0x1p-11 : 0x1p-8;
      ASSERT_NEAR(got[0][g][i], wanted.mean,
                  2 * unit * wanted.largest + 2 * double{format.small} * unit +
                      0x1p-23 * (format.dtype == PENSTOCK_FLOAT16 ? 1 : 0))
          << what << ", gradient " << g << " at " << i;
    }
}

TEST(Means, OfFloatsThatTravelInSixteenBitsAreDividedBeforeTheyAreRounded) {
  for (const Format& format : kFormats)
    for (const Layout& layout : kLayouts)
      for (const char* route : kRoutes) expect_means(format, layout, route, "wfbp", false);
}

TEST(Means, OfSixteenBitGradientsAreDividedBeforeTheyAreRounded) {
  for (const Format& format : kFormats)
    for (const Layout& layout : kLayouts)
      for (const char* route : kRoutes)
        for (const char* scheduler : {"wfbp", "fusion"})
          expect_means(format, layout, route, scheduler, true);
}

TEST(Means, ASumStaysASum) {
  for (const bool halves : {false, true})
    with_ranks(
        2, scheme_text(halves ? "" : "compressor = \"fp16\""), [&](Runtime& runtime, uint32_t) {
          const uint32_t dtype = halves ? uint32_t{PENSTOCK_FLOAT16} : uint32_t{PENSTOCK_FLOAT32};
          auto set = make_set(runtime, {{"g", {2}, dtype}}, PENSTOCK_SET_SUM);
          ASSERT_OK(set.status());
          if (halves) {
            Bits bits{{test::to_float16(40000), test::to_float16(3)}};
            run_step_of(*set.value(), bits, dtype);
            EXPECT_EQ(bits[0][0], 0x7c00) << "infinite";
            EXPECT_EQ(bits[0][1], test::to_float16(6));
          } else {
            Values values{{40000, 3}};
            run_step_of(*set.value(), values, dtype);
            EXPECT_TRUE(std::isinf(values[0][0]));
            EXPECT_EQ(values[0][1], 6.0f);
          }
        });
}

// The values that a residual keeps come in later steps, and no value becomes infinite or vanishes.
TEST(Means, UnderAResidualComeWholeInTheEnd) {
  constexpr uint32_t kRanks = 4;
  for (const char* route : {"flat", "split", "hierarchical"})
    with_ranks(kRanks,
               scheme_text(on_route(route) + "compressor = \"fp16\"\nmemory = \"residual\"") +
                   "[collective.loopback]\nhosts = \"0,0,1,1\"\n",
               [&](Runtime& runtime, uint32_t rank) {
                 auto set = make_set(runtime, {{"g", {3}}}, PENSTOCK_SET_DEFERRED_UPDATE);
                 ASSERT_OK(set.status());
                 std::vector<double> total(3);
                 for (int step = 0; step < 12; ++step) {
                   // The last value exists only on rank 0, and float16 would round its mean to
                   // zero.
                   Values values{{40000, 1e-6f, rank == 0 ? 1e-7f : 0.0f}};
                   if (step != 0) values = {{0, 0, 0}};
                   run_step_of(*set.value(), values, PENSTOCK_FLOAT32);
                   for (size_t i = 0; i < 3; ++i) {
                     ASSERT_TRUE(std::isfinite(values[0][i])) << route << " step " << step;
                     total[i] += values[0][i];
                   }
                 }
                 EXPECT_NEAR(total[0], 40000, 20) << route;
                 EXPECT_NEAR(total[1], 1e-6, 0x1p-25) << route;
                 EXPECT_NEAR(total[2], 1e-7 / kRanks, 0x1p-25 / 2) << route;
               });
}

TEST(Means, OfWhatIsNotFiniteOnOneRankAreVoidOnAll) {
  for (const char* route : kRoutes)
    with_ranks(4,
               scheme_text(on_route(route) + "compressor = \"fp16\"") +
                   "[collective.loopback]\nhosts = \"0,0,1,1\"\n",
               [&](Runtime& runtime, uint32_t rank) {
                 auto set = make_set(runtime, {{"g", {3}}}, PENSTOCK_SET_DEFERRED_UPDATE);
                 ASSERT_OK(set.status());
                 Values values{{1, rank == 2 ? std::nanf("") : 1.0f, 1}};
                 run_step_of(*set.value(), values, PENSTOCK_FLOAT32);
                 for (const float value : values[0]) EXPECT_TRUE(std::isnan(value)) << route;
               });
}

}  // namespace
}  // namespace penstock::means_test
