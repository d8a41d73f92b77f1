// See contraction.hpp.
#include <cmath>
#include <support/contraction.hpp>
#include <support/sparse_oracle.hpp>
#include <testing/data.hpp>

namespace penstock::test {
namespace {

double size_of(const std::vector<double>& values, int power) {
  double sum = 0;
  for (const double value : values) sum += std::pow(std::fabs(value), power);
  return sum;
}

// The input of encode: the gradient plus the kept values, in float, as the memory adds them.
std::vector<float> compressed(const CompressorRig& rig, uint32_t rank, uint64_t item,
                              const std::vector<float>& gradient) {
  std::vector<float> x = gradient;
  if (rig.memory_need(item).work_is != PENSTOCK_WORK_IS_STATE) return x;
  const std::vector<float> kept = rig.work(rank, item);
  for (uint64_t e = 0; e < x.size(); ++e) x[e] += kept[e];
  return x;
}

// Sums over the steps, for one item of one rank.
struct Sums {
  double left = 0;
  double allowed = 0;
};

void expect_one(const Contraction& contraction, const CompressorRig& rig, uint32_t rank,
                uint64_t item, const std::vector<float>& x, double rounding, Sums& sums) {
  const std::vector<float>& sent = rig.sent(rank, item);
  std::vector<double> rest(x.begin(), x.end());
  for (uint64_t e = 0; e < x.size(); ++e) rest[e] -= double{sent[e]};
  const double whole = size_of({x.begin(), x.end()}, contraction.power);
  const double left = size_of(rest, contraction.power);
  ASSERT_TRUE(std::isfinite(left));
  const double share = contraction.share(rig, rank, item);
  ASSERT_TRUE(share >= 0 && share <= 1) << share;
  sums.left += left;
  sums.allowed += (1 - share + rounding) * whole;
  ASSERT_LE(left, (1 - (contraction.in_the_mean ? 0 : share) + rounding) * whole)
      << "a share of " << share << " was sent";
  if (contraction.projects) {
    ASSERT_NEAR(left, whole - size_of({sent.begin(), sent.end()}, 2), rounding * whole);
  }
}

void expect_on(const Contraction& contraction, const Distribution& distribution) {
  CompressorRig rig({.ranks = contraction.ranks}, contraction.shapes, contraction.plugin,
                    contraction.options, load_plugin("memory", "residual"));
  // Subnormal numbers do not have 24 significant bits.
  const bool coarse = distribution.name == "subnormal" && contraction.rounding > 1e-9;
  const double rounding = coarse ? 1e-2 : contraction.rounding;
  std::vector<uint64_t> numels;
  for (uint64_t i = 0; i < rig.n_items(); ++i) numels.push_back(rig.numel(i));
  std::vector<std::vector<Sums>> sums(rig.ranks(), std::vector<Sums>(numels.size()));
  for (uint64_t step = 0; step < contraction.steps; ++step) {
    const RankTensors gradients = draw_gradients(distribution.draw, rig.ranks(), numels, step);
    RankTensors x(rig.ranks());
    for (uint32_t r = 0; r < rig.ranks(); ++r)
      for (uint64_t i = 0; i < numels.size(); ++i)
        x[r].push_back(compressed(rig, r, i, gradients[r][i]));
    rig.step(gradients);
    for (uint32_t r = 0; r < rig.ranks(); ++r)
      for (uint64_t i = 0; i < numels.size(); ++i)
        ASSERT_NO_FATAL_FAILURE(expect_one(contraction, rig, r, i, x[r][i], rounding, sums[r][i]))
            << distribution.name << ", step " << step << ", rank " << r << ", item " << i << " of "
            << numels[i];
  }
  for (uint32_t r = 0; r < rig.ranks(); ++r)
    for (uint64_t i = 0; i < numels.size(); ++i)
      EXPECT_LE(sums[r][i].left, sums[r][i].allowed)
          << distribution.name << ", all steps, rank " << r << ", item " << i;
}

}  // namespace

double share_of_entries(const CompressorRig& rig, uint32_t rank, uint64_t item) {
  const uint64_t numel = rig.numel(item);
  return numel == 0 ? 0 : double(rig.sent_count(rank, item)) / double(numel);
}

SentShare share_of_the_largest(double density) {
  return [density](const CompressorRig& rig, uint32_t, uint64_t item) {
    const uint64_t numel = rig.numel(item);
    return numel == 0 ? 0 : double(kept_of(numel, density)) / double(numel);
  };
}

double no_share(const CompressorRig&, uint32_t, uint64_t) {
  return 0;
}

void expect_contraction(const Contraction& contraction) {
  for (const Distribution& distribution : distributions()) expect_on(contraction, distribution);
}

}  // namespace penstock::test
