// RedSync against plain loops with full sorts: both searches, and the quantised form.
#include <support/coded.hpp>
#include <support/contraction.hpp>
#include <support/steered_oracle.hpp>

#include <tuple>

namespace penstock::test {
namespace {

LoadedPlugin plugin() {
  return load_plugin(PENSTOCK_PLUGIN_FILE);
}
LoadedPlugin residual() {
  return load_plugin("memory", "residual");
}

uint64_t reached(const std::vector<float>& x, float threshold) {
  return static_cast<uint64_t>(std::count_if(x.begin(), x.end(), [threshold](float value) {
    return value != 0 && std::fabs(value) >= threshold;
  }));
}

// Halves [0, 1] eight times at most, until the number is within a tenth.
float bisected(const std::vector<float>& x, double mean, double largest, double k) {
  double low = 0, high = 1;
  for (int halving = 0; halving < 8; ++halving) {
    const double middle = (low + high) / 2;
    const auto threshold = static_cast<float>(mean + middle * (largest - mean));
    const auto count = static_cast<double>(reached(x, threshold));
    if (std::fabs(count - k) <= std::floor(k / 10)) return threshold;
    (count > k ? low : high) = middle;
  }
  return static_cast<float>(mean + low * (largest - mean));
}

float estimate(SteeredOracle& oracle, const std::vector<float>& x) {
  auto& learned = oracle.learned;
  double sum = 0, largest = 0;
  for (const float value : x) {
    sum += std::fabs(double{value});
    largest = std::max(largest, std::fabs(double{value}));
  }
  const double mean = x.empty() ? 0 : sum / static_cast<double>(x.size());
  learned["mean"] = mean;
  learned["width"] = largest - mean;
  if (learned["known"] > 0)
    return static_cast<float>(mean + learned["position"] * (largest - mean));
  const uint64_t k = x.empty() ? 0 : kept_of(x.size(), oracle.density);
  if (!oracle.exact) return bisected(x, mean, largest, static_cast<double>(k));
  for (const double position : {0.8, 0.6, 0.4, 0.2, 0.0}) {
    const auto threshold = static_cast<float>(mean + position * (largest - mean));
    if (reached(x, threshold) >= k) return threshold / 0.9f;
  }
  return 0;
}
void learn(SteeredOracle& oracle, float settled) {
  auto& learned = oracle.learned;
  learned["known"] = oracle.hit ? 1 : 0;
  learned["position"] =
      static_cast<float>(learned["width"] > 0 ? (settled - learned["mean"]) / learned["width"] : 0);
}

TEST(RedSync, SendsWithinATenthOfTheShareAndExactlyTheLargest) {
  // The method does not define which of several thresholds inside the band a search finds first. So
  // the test checks that the number is within the band, the entries are the largest, and nothing
  // else has changed.
  for (const Distribution& distribution : distributions())
    for (const uint32_t ranks : {1, 3}) {
      const std::vector<uint64_t> numels{300, 0, 1, 57};
      CompressorRig rig({.ranks = ranks, .ranks_per_slice = ranks / 2, .check_mass = true},
                        {{300}, {0}, {1}, {57}}, plugin(),
                        {{"density", 0.05}, {"value_type", "fp32"}}, residual());
      RankTensors kept(ranks);
      for (auto& of_rank : kept)
        for (const uint64_t numel : numels) of_rank.emplace_back(numel);
      for (uint64_t step = 0; step < 100; ++step) {
        const RankTensors gradients = draw_gradients(distribution.draw, ranks, numels, step);
        const Tensors mean = rig.step(gradients);
        for (uint64_t i = 0; i < numels.size(); ++i) {
          std::vector<float> total(numels[i]);
          for (uint32_t r = 0; r < ranks; ++r) {
            std::vector<float>& work = kept[r][i];
            uint64_t nonzero = 0;
            for (uint64_t e = 0; e < numels[i]; ++e)
              nonzero += (work[e] += gradients[r][i][e]) != 0 ? 1 : 0;
            const uint64_t k = numels[i] == 0 ? 0 : kept_of(numels[i], 0.05);
            const uint64_t count = rig.sent_count(r, i);
            ASSERT_LE(count, std::min(nonzero, k + k / 10));
            ASSERT_GE(count, std::min(nonzero, k - k / 10));
            send(SteeredOracle::reaching(work, 0, count), work, total);
            ASSERT_EQ(rig.work(r, i), work) << distribution.name << ", step " << step;
          }
          for (float& value : total) value /= static_cast<float>(ranks);
          ASSERT_EQ(mean[i], total) << distribution.name << ", step " << step;
        }
      }
    }
}

SentOracle searched(double density, int reuse, bool exact, const std::string& value_type = "auto") {
  return steered({.density = density, .reuse_period = reuse, .exact = exact}, estimate, learn,
                 value_type);
}

// Each sent entry is sent as the mean of the sent entries: positive entries compete in even steps,
// negative entries in odd steps, and each sign of each gradient of each rank has its own threshold.
SentOracle quantised(double density, int reuse, bool exact) {
  using Key = std::tuple<uint64_t, uint32_t, bool>;
  const auto oracles = std::make_shared<std::map<Key, SteeredOracle>>();
  return [=](const std::vector<float>& x, const Sender& sender) {
    if (sender.step == 0)
      for (const bool sign : {false, true})
        (*oracles)[{sender.item, sender.rank, sign}] = {
            .density = density, .reuse_period = reuse, .exact = exact};
    const bool negative = sender.step % 2 == 1;
    std::vector<float> magnitudes(x.size());
    for (size_t e = 0; e < x.size(); ++e)
      if (negative ? x[e] < 0 : x[e] > 0) magnitudes[e] = std::fabs(x[e]);
    SteeredOracle& oracle = (*oracles)[{sender.item, sender.rank, negative}];
    const std::vector<uint32_t> chosen = oracle.choose(magnitudes, estimate, learn);
    double sum = 0;
    for (const uint32_t e : chosen) sum += double{x[e]};
    std::vector<float> sent(x.size());
    for (const uint32_t e : chosen)
      sent[e] = static_cast<float>(sum / static_cast<double>(chosen.size()));
    return sent;
  };
}

TEST(RedSync, BisectionFindsTheThresholdOfPlainHalving) {
  for (const Distribution& distribution : distributions())
    for (const double density : {0.01, 0.05})
      expect_equals_steered_oracle(plugin(), {{"density", density}, {"reuse_period", 3}},
                                   searched(density, 3, false), {1000, 64, 3}, 12, distribution, 1);
}

TEST(RedSync, BisectionAtAwkwardSizesEqualsTheOracle) {
  for (const AwkwardInput& input : awkward_inputs())
    expect_equals_steered_oracle(plugin(), {{"density", 0.01}, {"reuse_period", 2}},
                                 searched(0.01, 2, false), input.sizes, 4, input.distribution, 2);
}

TEST(RedSync, NarrowValuesEqualTheOracleAndLeaveTheirRoundingInWork) {
  for (const char* type : {"fp16", "bf16", "int8", "sign"})
    for (const Distribution& distribution : distributions())
      for (const char* search : {"bisection", "trimmed"})
        expect_equals_steered_oracle(plugin(),
                                     {{"density", 0.05}, {"search", search}, {"value_type", type}},
                                     searched(0.05, 5, std::string(search) == "trimmed", type),
                                     {300, 0, 1, 57}, 30, distribution, 3);
}

TEST(RedSync, TrimmedSendsExactlyTheLargestOver100Steps) {
  for (const Distribution& distribution : distributions()) {
    expect_equals_steered_oracle(plugin(), {{"density", 0.05}, {"search", "trimmed"}},
                                 searched(0.05, 5, true), {300, 0, 1, 57}, 100, distribution, 2);
    expect_equals_steered_oracle(plugin(), {{"density", 0.01}, {"search", "trimmed"}},
                                 searched(0.01, 5, true), awkward_sizes(), 2, distribution, 1);
  }
}

TEST(RedSync, SixteenMillionElementsEqualTheOracle) {
  expect_large_gradients_equal({.plugin = plugin()}, searched(0.001, 5, false));
}

TEST(RedSync, KeepsTheShareWithinATenthOnDistinctMagnitudes) {
  expect_kept_within_a_tenth(plugin(), {});
  expect_kept_within_a_tenth(plugin(), {{"search", "trimmed"}});
}

TEST(RedSync, QuantisedSendsOneSignAndTheOtherInTheNextStep) {
  CompressorRig rig({.ranks = 1, .check_mass = true, .mass_tolerance = 0x1p-23}, {{6}}, plugin(),
                    {{"density", 0.5}, {"search", "trimmed"}, {"quantised", true}}, residual());
  EXPECT_EQ(rig.step({{{4, -8, 2, -1, 6, 0}}}), (Tensors{{4, 0, 4, 0, 4, 0}}));
  EXPECT_EQ(rig.work(0, 0), (std::vector<float>{0, -8, -2, -1, 2, 0}));
  EXPECT_EQ(rig.step({{{0, 0, 0, 0, 0, 0}}}),
            (Tensors{{0, -3.6666667f, -3.6666667f, -3.6666667f, 0, 0}}));
  const penstock_section_bound& scale = rig.need(0).rounds[0].sections[1];
  EXPECT_EQ(scale.capacity, 1u);
  EXPECT_EQ(scale.dtype, uint32_t{PENSTOCK_FLOAT32});
}

TEST(RedSync, QuantisedEqualsPlainLoopsOver100Steps) {
  for (const Distribution& distribution : distributions()) {
    CompressorRig rig({.ranks = 2, .check_mass = true, .mass_tolerance = 0x1p-23}, {{500}},
                      plugin(), {{"density", 0.04}, {"search", "trimmed"}, {"quantised", true}},
                      residual());
    RankTensors kept(2, Tensors(1, std::vector<float>(500)));
    for (uint64_t step = 0; step < 100; ++step) {
      const RankTensors gradients = draw_gradients(distribution.draw, 2, {500}, step);
      std::vector<float> total(500);
      for (uint32_t r = 0; r < 2; ++r) {
        std::vector<float>& work = kept[r][0];
        std::vector<float> one_sign(500);
        for (uint64_t e = 0; e < 500; ++e) {
          work[e] += gradients[r][0][e];
          if (step % 2 == 0 ? work[e] > 0 : work[e] < 0) one_sign[e] = work[e];
        }
        double sum = 0;
        const std::vector<uint32_t> chosen = SteeredOracle::reaching(one_sign, 0, 20);
        for (const uint32_t i : chosen) sum += double{work[i]};
        const auto mean = static_cast<float>(sum / static_cast<double>(chosen.size()));
        for (const uint32_t i : chosen) {
          total[i] += mean;
          work[i] -= mean;
        }
      }
      for (float& value : total) value /= 2;
      ASSERT_EQ(rig.step(gradients)[0], total) << distribution.name << ", step " << step;
    }
  }
}

void expect_quantised_equals(double density, int reuse, const char* search,
                             const std::vector<uint64_t>& numels, uint64_t steps,
                             const Distribution& distribution, uint32_t ranks) {
  expect_equals({.plugin = plugin(),
                 .options = {{"density", density},
                             {"reuse_period", reuse},
                             {"search", search},
                             {"quantised", true}},
                 .shapes = vectors(numels),
                 // Subtracting the mean rounds once.
                 .rig = {.ranks = ranks, .check_mass = true, .mass_tolerance = 0x1p-23},
                 .steps = steps},
                quantised(density, reuse, std::string(search) == "trimmed"), distribution);
}

TEST(RedSync, QuantisedBisectionEqualsTheOracleOver60Steps) {
  for (const Distribution& distribution : distributions())
    for (uint32_t ranks = 1; ranks <= 4; ++ranks)
      expect_quantised_equals(0.05, 3, "bisection", {300, 0, 1, 57}, 60, distribution, ranks);
}

TEST(RedSync, QuantisedAtAwkwardSizesEqualsTheOracle) {
  for (const AwkwardInput& input : awkward_inputs())
    for (const char* search : {"bisection", "trimmed"})
      expect_quantised_equals(0.01, 2, search, input.sizes, 6, input.distribution, 2);
}

TEST(RedSync, NothingIsLostOver100StepsOfEveryKindAndValueType) {
  expect_nothing_is_lost(plugin(), {{"density", 0.05}});
  expect_nothing_is_lost(plugin(), {{"density", 0.05}, {"quantised", true}}, false);
}

TEST(RedSync, CompensatingInTheSameSweepChangesNoBit) {
  for (const char* search : {"bisection", "trimmed"})
    expect_folding_changes_no_bit(plugin(), {{"density", 0.05}, {"search", search}},
                                  {{30, 40}, {0}, {1}, {70, 70}});
}

TEST(RedSync, RefusesATypeForValuesThatAreNotSent) {
  EXPECT_THROW(CompressorRig({}, {{4}}, plugin(), {{"quantised", true}, {"value_type", "fp16"}}),
               std::runtime_error);
}

TEST(RedSync, PayloadsAreInput) {
  CompressorRig rig({.ranks = 2}, {{16}}, plugin(), {{"density", 0.5}});
  expect_sparse_payloads_are_input(rig);
}

TEST(RedSync, QuantisedPayloadsAreInput) {
  CompressorRig rig({.ranks = 2}, {{16}}, plugin(), {{"density", 0.5}, {"quantised", true}});
  const std::vector<float> values(16, 1.5f);
  const auto refuse = [&](const std::function<void(OwnedPayload&)>& change, const char* why) {
    expect_refused(rig, values, change, why);
  };
  refuse([](OwnedPayload& sent) { entry<uint32_t>(sent, 0, 0) = 16; }, "index 16 at entry 0");
  refuse([](OwnedPayload& sent) { entry<uint32_t>(sent, 0, 2) = entry<uint32_t>(sent, 0, 1); },
         "at entry 2, expected ascending ones below 16");
  refuse([](OwnedPayload& sent) { entry<float>(sent, 1, 0) = INFINITY; }, "expected a finite one");
  refuse([](OwnedPayload& sent) { sent.c()->kind = PENSTOCK_PAYLOAD_DENSE; }, "expected coded");
}

TEST(RedSync, LeavesAtMostTheShareThatWasNotSent) {
  Contraction contraction{.plugin = plugin(),
                          .options = {{"density", 0.05}},
                          .shapes = {{300}, {0}, {1}, {57}, {20, 33}},
                          .rounding = 1e-6};
  expect_contraction(contraction);
  contraction.options.push_back({"search", "trimmed"});
  contraction.share = share_of_the_largest(0.05);
  expect_contraction(contraction);
  // One mean for all sent entries is nearer to them than zero is, taken together, but not by their
  // share.
  contraction.options.push_back({"quantised", true});
  contraction.share = no_share;
  expect_contraction(contraction);
}

}  // namespace
}  // namespace penstock::test
