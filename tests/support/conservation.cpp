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
      settings.forgotten = true;
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

using Elements = std::vector<std::vector<double>>;  // [item][element]

Elements zeros(const CompressorRig& rig) {
  Elements made;
  for (uint64_t i = 0; i < rig.n_items(); ++i) made.emplace_back(rig.numel(i));
  return made;
}

// A sum over ranks in 16 bits has this rounding, relative to the sent values (and to the smallest
// subnormal). No memory keeps it.
struct Rounding {
  double relative = 0x1p-24;
  double absolute = 0x1p-149;
};
Rounding rounding_of_sums(const CompressorRig& rig, uint64_t item) {
  Rounding rounding;
  for (uint32_t phase = 0; phase < rig.need(item).period; ++phase)
    for (const PlannedRound& round : rig.need(item, phase).rounds)
      for (const penstock_section_bound& section : round.sections) {
        if (round.c.combine != PENSTOCK_COMBINE_SUM) continue;
        if (section.dtype == PENSTOCK_FLOAT16) rounding = {0x1p-11, 0x1p-25};
        if (section.dtype == PENSTOCK_BFLOAT16) rounding = {0x1p-8, 0x1p-134};
      }
  return rounding;
}

// The balance of the values in the rig, in double.
struct Books {
  explicit Books(CompressorRig& rig)
      : balance(rig.ranks(), zeros(rig)), magnitude(balance), total(zeros(rig)), sent(total) {}
  std::vector<Elements> balance;    // for each rank: gradients minus sent values
  std::vector<Elements> magnitude;  // for each rank: sum of |gradient|
  Elements total;                   // gradients of all ranks minus the decoded sums
  Elements sent;                    // sum of |sent| over ranks and steps
};

// Adds a step. If a method never keeps values, the gradients of a void step are lost.
void enter(Books& books, const CompressorRig& rig, const RankTensors& gradients,
           const Tensors& mean, const StepSettings& settings) {
  if (settings.forgotten) return;
  const bool took_effect = !settings.void_rank;
  for (uint64_t i = 0; i < rig.n_items(); ++i) {
    const bool keeps = rig.memory_need(i).work_is == PENSTOCK_WORK_IS_STATE;
    if (!keeps && !took_effect) continue;
    for (uint64_t e = 0; e < rig.numel(i); ++e) {
      if (took_effect) books.total[i][e] -= double{mean[i][e]} * rig.ranks();
      for (uint32_t r = 0; r < rig.ranks(); ++r) {
        if (settings.void_rank == r) continue;
        if (!settings.joined.empty() && settings.joined[0] == r) continue;
        const double gradient = gradients[r][i][e];
        books.total[i][e] += gradient;
        books.balance[r][i][e] += gradient;
        books.magnitude[r][i][e] += std::fabs(gradient);
        if (!took_effect) continue;
        // Without kept values, `work` is the gradient itself and has the loss scale.
        const double sent = double{rig.sent(r, i)[e]} / (keeps ? 1 : settings.grad_scale);
        books.balance[r][i][e] -= sent;
        books.sent[i][e] += std::fabs(sent);
      }
    }
  }
}

void share_the_largest(std::vector<double>& sizes) {
  if (!sizes.empty())
    std::fill(sizes.begin(), sizes.end(), *std::max_element(sizes.begin(), sizes.end()));
}

}  // namespace

void expect_conservation(CompressorRig& rig, const Distribution& distribution, uint64_t steps,
                         KeptSize kept_size) {
  std::vector<uint64_t> numels;
  for (uint64_t i = 0; i < rig.n_items(); ++i) numels.push_back(rig.numel(i));
  Books books(rig);
  for (uint64_t step = 0; step < steps; ++step) {
    const RankTensors gradients = draw_gradients(distribution.draw, rig.ranks(), numels, step);
    const StepSettings settings = kind_of(step, rig.ranks());
    enter(books, rig, gradients, rig.step(gradients, settings), settings);
  }
  // Each addition to kept values rounds once, by at most 2^-24 of a sum of magnitudes (or of the
  // smallest subnormal). A step adds the gradient, subtracts the sent values and may add them
  // again. The sum over ranks rounds once per rank, and the mean rounds once.
  for (uint64_t i = 0; i < numels.size(); ++i) {
    if (kept_size == KeptSize::kByLargest) share_the_largest(books.sent[i]);
    const Rounding of_sum = rounding_of_sums(rig, i);
    std::vector<double> bound(numels[i]);
    for (uint64_t e = 0; e < numels[i]; ++e)
      bound[e] = (rig.ranks() + 1) * (of_sum.relative * books.sent[i][e] +
                                      static_cast<double>(steps) * of_sum.absolute);
    for (uint32_t r = 0; r < rig.ranks(); ++r) {
      const std::vector<float> kept = rig.drain(r, i);
      std::vector<double>& sizes = books.magnitude[r][i];
      if (kept_size == KeptSize::kByLargest) share_the_largest(sizes);
      for (uint64_t e = 0; e < numels[i]; ++e) {
        const double own = static_cast<double>(3 * steps) * (0x1p-24 * sizes[e] + 0x1p-149);
        ASSERT_NEAR(books.balance[r][i][e], double{kept[e]}, own)
            << distribution.name << ": element " << e << " of item " << i << " on rank " << r;
        books.total[i][e] -= double{kept[e]};
        bound[e] += own;
      }
    }
    for (uint64_t e = 0; e < numels[i]; ++e)
      ASSERT_LE(std::fabs(books.total[i][e]), bound[e])
          << distribution.name << ": element " << e << " of item " << i << " in the sum over "
          << rig.ranks() << " ranks";
  }
}

}  // namespace penstock::test
