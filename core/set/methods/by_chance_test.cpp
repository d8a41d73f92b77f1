// Stochastic casts (compressors fp16 and bf16): results equal the definition to the bit, whichever
// buckets, cuts, orders and routes the plan has.

#include "core/set/training_testing.hpp"

#include <support/coded.hpp>
#include <support/stochastic_cast.hpp>

namespace penstock::by_chance_test {
namespace {

using Values = std::vector<std::vector<float>>;  // [gradient][element]
const std::vector<testing::GradientShape> kShapes{
    {"weight", {40, 60}}, {"bias", {10}}, {"empty", {0}}, {"one", {1}}, {"table", {140, 31}}};
constexpr uint64_t kSteps = 4;

std::vector<float> gradient(uint64_t step, uint32_t rank, size_t g) {
  return test::heavy_tailed(testing::numel_of(kShapes[g]), (step * 16 + rank) * 16 + g);
}

// The results of each step on rank 0. All ranks must have equal bits.
std::vector<Values> results(uint32_t size, const std::string& keys, const std::string& tables) {
  std::vector<std::vector<Values>> all(size);
  const std::string scheme = testing::scheme_text(
      keys, "log_level = \"error\"\n" + testing::test_plugins({"random_plan"}) + tables);
  testing::with_ranks(size, scheme, [&](Runtime& runtime, uint32_t rank) {
    auto set = testing::make_set(runtime, kShapes, PENSTOCK_SET_DEFERRED_UPDATE);
    ASSERT_OK(set.status());
    for (uint64_t step = 0; step < kSteps; ++step) {
      Values values;
      for (size_t g = 0; g < kShapes.size(); ++g) values.push_back(gradient(step, rank, g));
      for (size_t g = kShapes.size(); g-- > 0;)
        ASSERT_OK(set.value()->gradient_ready(g, testing::view_of(values[g])));
      if (set.value()->defers()) ASSERT_OK(set.value()->backward_end());
      ASSERT_OK(set.value()->wait_all());
      ASSERT_OK(set.value()->step_end(PENSTOCK_STEP_APPLIED));
      all[rank].push_back(values);
    }
  });
  for (uint32_t rank = 1; rank < size; ++rank) EXPECT_EQ(all[rank], all[0]) << keys;
  return all[0];
}

// A cast by the words of one rank, on one leg of a route.
float cast(const test::ChanceType& type, float value, uint64_t step, size_t g, uint64_t rank,
           uint64_t leg, uint64_t element) {
  const test::DrawnBy by{1, g, test::stream_in_step(4, step), leg << 32 | rank};
  return test::cast_by_chance(type, value, test::drawn_word(by, element));
}

// The sums in float32, in ascending order of ranks, of the values that the ranks send.
std::vector<float> sum_of_sent(const test::ChanceType& type, uint32_t size, uint64_t step,
                               size_t g) {
  std::vector<float> sum(testing::numel_of(kShapes[g]));
  for (uint32_t rank = 0; rank < size; ++rank) {
    const std::vector<float> values = gradient(step, rank, g);
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += cast(type, values[i], step, g, rank, 0, i);
  }
  return sum;
}

struct Format {
  const char* name;
  const test::ChanceType& type;
};
const Format kFormats[] = {{"fp16", test::kChanceHalf}, {"bf16", test::kChanceBfloat16}};
constexpr uint32_t kSizes[] = {1, 3, 4};

struct Plans {
  const char* keys;
  const char* tables = "";
};
// Gradients one by one, together, cut at random places, and cut for their owners.
const Plans kPlans[] = {
    {"scheduler = \"wfbp\""},
    {"scheduler = \"fusion\""},
    {"scheduler = \"random-plan-c\"", "[scheduler.random-plan-c]\nseed = 3\nroutes = 2\n"},
    {"scheduler = \"random-plan-c\"", "[scheduler.random-plan-c]\nseed = 4\nroutes = 2\n"},
    {"scheduler = \"dear\"\nroute = \"split\""}};

std::string options(const Format& format, const char* combine) {
  return fmt::format("[compressor.{}]\nrounding = \"stochastic\"\ncombine = \"{}\"\n", format.name,
                     combine);
}

TEST(ByChance, NoPlanChangesABitOfAMeanThatTheTransportRounds) {
  for (const Format& format : kFormats)
    for (const uint32_t size : kSizes)
      for (const Plans& plans : kPlans) {
        const auto got =
            results(size, fmt::format("{}\ncompressor = \"{}\"", plans.keys, format.name),
                    options(format, "sum") + plans.tables);
        for (uint64_t step = 0; step < kSteps; ++step)
          for (size_t g = 0; g < kShapes.size(); ++g) {
            std::vector<float> mean = sum_of_sent(format.type, size, step, g);
            for (float& x : mean)
              x = format.type.from_bits(format.type.to_bits(x / static_cast<float>(size)));
            ASSERT_EQ(got[step][g], mean) << format.name << ", " << plans.keys << plans.tables;
          }
      }
}

TEST(ByChance, NoPlanChangesABitOfASumInFloat32) {
  for (const Format& format : kFormats)
    for (const uint32_t size : kSizes)
      for (const Plans& plans : kPlans) {
        if (std::string_view(plans.keys).find("split") != std::string_view::npos) continue;
        const auto got =
            results(size, fmt::format("{}\ncompressor = \"{}\"", plans.keys, format.name),
                    options(format, "gather") + plans.tables);
        for (uint64_t step = 0; step < kSteps; ++step)
          for (size_t g = 0; g < kShapes.size(); ++g) {
            std::vector<float> mean = sum_of_sent(format.type, size, step, g);
            for (float& x : mean) x *= static_cast<float>(1.0 / size);
            ASSERT_EQ(got[step][g], mean) << format.name << ", " << plans.keys << plans.tables;
          }
      }
}

// On `shard` the owner rounds the sum once more, by words of its own leg, so the result is right on
// average too.
TEST(ByChance, OwnersRoundTheSumByChanceToo) {
  for (const Format& format : kFormats)
    for (const uint32_t size : {2u, 4u})
      for (const char* scheduler : {"wfbp", "fusion"}) {
        const auto got =
            results(size,
                    fmt::format("scheduler = \"{}\"\nroute = \"shard\"\ncompressor = \"{}\"",
                                scheduler, format.name),
                    options(format, "gather"));
        for (uint64_t step = 0; step < kSteps; ++step)
          for (size_t g = 0; g < kShapes.size(); ++g) {
            const std::vector<float> sum = sum_of_sent(format.type, size, step, g);
            for (size_t i = 0; i < sum.size(); ++i) {
              bool is_of_an_owner = false;
              for (uint32_t owner = 0; owner < size; ++owner)
                is_of_an_owner |=
                    got[step][g][i] == cast(format.type, sum[i], step, g, owner, 1, i) *
                                           static_cast<float>(1.0 / size);
              ASSERT_TRUE(is_of_an_owner) << format.name << ", gradient " << g << " at " << i;
            }
          }
      }
}

}  // namespace
}  // namespace penstock::by_chance_test
