// See conservation.hpp.
#include <algorithm>
#include <cmath>
#include <support/conservation.hpp>

namespace penstock::test {
namespace {

StepSettings kind_of(uint64_t step, uint32_t ranks) {
  StepSettings settings;
  const auto rank = static_cast<uint32_t>(step / 10 % ranks);
  switch (step % 10) {
    case 3:
      settings.void_rank = rank;
      break;
    case 5:
      settings.applied = false;
      break;
    case 7:
      settings.refuse = [](uint32_t, uint64_t, uint64_t entry) { return entry % 3 == 1; };
      break;
    case 8:
      if (ranks > 1) settings.joined = {rank};
      break;
    case 9:
      settings.grad_scale = 1024;
      break;
  }
  return settings;
}

}  // namespace

void expect_conservation(CompressorRig& rig, const Distribution& distribution, uint64_t steps,
                         KeptSize kept_size) {
  using Sums = std::vector<std::vector<std::vector<double>>>;  // [rank][item][element]
  std::vector<uint64_t> numels;
  for (uint64_t i = 0; i < rig.n_items(); ++i) numels.push_back(rig.numel(i));
  Sums balance(rig.ranks()), magnitude(rig.ranks());
  for (uint32_t r = 0; r < rig.ranks(); ++r)
    for (const uint64_t numel : numels) {
      balance[r].emplace_back(numel);
      magnitude[r].emplace_back(numel);
    }
  for (uint64_t step = 0; step < steps; ++step) {
    const RankTensors gradients = draw_gradients(distribution.draw, rig.ranks(), numels, step);
    const StepSettings settings = kind_of(step, rig.ranks());
    rig.step(gradients, settings);
    const bool took_effect = settings.applied && !settings.void_rank;
    for (uint32_t r = 0; r < rig.ranks(); ++r) {
      if (settings.void_rank == r) continue;
      if (!settings.joined.empty() && settings.joined[0] == r) continue;
      for (uint64_t i = 0; i < numels.size(); ++i)
        for (uint64_t e = 0; e < numels[i]; ++e) {
          balance[r][i][e] += double{gradients[r][i][e]};
          magnitude[r][i][e] += std::fabs(double{gradients[r][i][e]});
          if (took_effect) balance[r][i][e] -= double{rig.sent(r, i)[e]};
        }
    }
  }
  // Every addition to what is kept rounds once, by at most 2^-24 of a sum of magnitudes (or of the
  // smallest subnormal); a step adds the gradient, takes out and may add again.
  for (uint32_t r = 0; r < rig.ranks(); ++r)
    for (uint64_t i = 0; i < numels.size(); ++i) {
      const std::vector<float> kept = rig.drain(r, i);
      std::vector<double>& sizes = magnitude[r][i];
      if (kept_size == KeptSize::kByLargest && !sizes.empty())
        std::fill(sizes.begin(), sizes.end(), *std::max_element(sizes.begin(), sizes.end()));
      for (uint64_t e = 0; e < numels[i]; ++e)
        ASSERT_NEAR(balance[r][i][e], double{kept[e]},
                    static_cast<double>(3 * steps) * (0x1p-24 * magnitude[r][i][e] + 0x1p-149))
            << distribution.name << ": element " << e << " of item " << i << " on rank " << r;
    }
}

}  // namespace penstock::test
