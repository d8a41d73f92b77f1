// Tests that one sweep gives the results of two: a kernel with a fold, against compensate in plain
// loops and then the kernel without a fold.
#include <gtest/gtest.h>

#include <penstock/memory.h>
#include <kernels/exceedances.hpp>
#include <kernels/fold.hpp>
#include <kernels/select.hpp>
#include <kernels/sign.hpp>
#include <kernels/statistics.hpp>
#include <support/code_paths.hpp>
#include <testing/data.hpp>

#include <map>
#include <string>
#include <tuple>
#include <vector>

namespace penstock::kernels::fold_test {
namespace {

constexpr uint32_t kForms[] = {PENSTOCK_FORM_AFFINE, PENSTOCK_FORM_HEAVY_BALL,
                               PENSTOCK_FORM_NESTEROV};

// The place of the old work and u: the place of the results, or elsewhere. Large results elsewhere
// are streamed.
enum class Place { here, elsewhere };
constexpr Place kPlaces[] = {Place::here, Place::elsewhere};

// Drawn once: many cases have equal arrays, and drawing takes longer than a kernel.
const std::vector<float>& drawn(const test::Distribution& distribution, uint64_t n, uint64_t seed) {
  static std::map<std::tuple<std::string, uint64_t, uint64_t>, std::vector<float>> all;
  const auto [found, is_new] = all.try_emplace({distribution.name, n, seed});
  if (is_new) found->second = distribution.draw(n, seed);
  return found->second;
}

// The arrays of one compensation, and the fold over them.
struct Arrays {
  Arrays(const test::Distribution& distribution, uint64_t n, uint32_t form, float beta, float gamma)
      : Arrays(drawn(distribution, n, 1), drawn(distribution, n, 2), drawn(distribution, n, 3),
               form, beta, gamma) {}
  Arrays(std::vector<float> g, std::vector<float> w, std::vector<float> momentum, uint32_t form,
         float beta, float gamma)
      : grad(std::move(g)), work(std::move(w)), u(std::move(momentum)) {
    fold = {form,
            beta,
            gamma,
            0.25f,
            grad.data(),
            work.data(),
            form == PENSTOCK_FORM_AFFINE ? nullptr : u.data()};
  }
  Arrays(const Arrays&) = delete;

  // The equations of memory.h, one element at a time.
  void compensate_plainly() {
    for (size_t i = 0; i < work.size(); ++i) {
      const float g = grad[i] * fold.unscale;
      if (fold.form == PENSTOCK_FORM_AFFINE) {
        work[i] = fold.beta * work[i] + fold.gamma * g;
      } else if (fold.form == PENSTOCK_FORM_HEAVY_BALL) {
        u[i] = fold.beta * u[i] + g;
        work[i] = work[i] + u[i];
      } else {
        u[i] = fold.beta * (u[i] + g);
        work[i] = work[i] + u[i];
        work[i] = work[i] + g;
      }
    }
  }

  // Lets work and u be read elsewhere; the memory of the results then has no meaningful content.
  void read(Place place) {
    if (place == Place::here) return;
    work_before = work;
    u_before = u;
    std::fill(work.begin(), work.end(), std::numeric_limits<float>::quiet_NaN());
    fold.work_before = work_before.data();
    if (fold.momentum != nullptr) {
      std::fill(u.begin(), u.end(), std::numeric_limits<float>::quiet_NaN());
      fold.momentum_before = u_before.data();
    }
  }

  std::vector<float> grad, work, u, work_before, u_before;
  Fold fold;
};

constexpr uint64_t kStreamed = kLeastStreamed / sizeof(float) + 4099;

std::vector<uint64_t> sizes() {
  std::vector<uint64_t> all = test::awkward_sizes();
  all.push_back(kStreamed);
  return all;
}

TEST(Fold, CompensateFollowsTheFormsOnEveryCodePath) {
  for (const uint32_t form : kForms)
    for (const uint64_t n : sizes())
      for (const Place place : kPlaces)
        for (const CodePath path : test::supported_paths()) {
          Arrays expected({"heavy_tailed", test::heavy_tailed}, n, form, 0.9f, 1.5f);
          Arrays found({"heavy_tailed", test::heavy_tailed}, n, form, 0.9f, 1.5f);
          expected.compensate_plainly();
          found.read(place);
          for (uint64_t i = 0; i < std::min<uint64_t>(n, 100); ++i)
            ASSERT_EQ(compensated(found.fold, i), expected.work[i]);
          compensate(found.fold, n, path);
          ASSERT_EQ(found.work, expected.work) << "form " << form << ", n " << n;
          ASSERT_EQ(found.u, expected.u);
        }
}

TEST(Fold, CompensateSaysWhetherAllResultsAreFinite) {
  const float broken[] = {std::numeric_limits<float>::quiet_NaN(),
                          std::numeric_limits<float>::infinity()};
  for (const uint32_t form : kForms)
    for (const uint64_t n : sizes())
      for (const Place place : kPlaces)
        for (const CodePath path : test::supported_paths()) {
          const auto is_finite = [&](uint64_t at, float value) {
            Arrays arrays({"heavy_tailed", test::heavy_tailed}, n, form, 0.9f, 1.5f);
            arrays.grad[at] = value;
            arrays.read(place);
            bool is_finite = true;
            arrays.fold.is_finite = &is_finite;
            compensate(arrays.fold, n, path);
            return is_finite;
          };
          if (n == 0) continue;
          ASSERT_TRUE(is_finite(0, 1)) << "form " << form << ", n " << n;
          for (const uint64_t at : {uint64_t{0}, n / 2, n - 1})
            for (const float value : broken)
              ASSERT_FALSE(is_finite(at, value)) << "form " << form << ", at " << at;
        }
}

TEST(Fold, CompensateClippedIsCompensateOfTheClippedGradient) {
  for (const uint32_t form : kForms)
    for (const Clip& clip : {Clip{}, Clip{0.3f}, Clip{1, 0.5f}, Clip{0.3f, 0.1f}})
      for (const uint64_t n : test::awkward_sizes())
        for (const CodePath path : test::supported_paths()) {
          Arrays expected({"heavy_tailed", test::heavy_tailed}, n, form, 0.9f, 1.5f);
          Arrays found({"heavy_tailed", test::heavy_tailed}, n, form, 0.9f, 1.5f);
          for (float& g : expected.grad) {
            g = g * expected.fold.unscale * clip.factor;
            g = g > clip.bound ? clip.bound : g < -clip.bound ? -clip.bound : g;
          }
          expected.fold.unscale = 1;
          expected.compensate_plainly();
          compensate_clipped(found.fold, clip, n, path);
          ASSERT_EQ(found.work, expected.work) << "form " << form << ", n " << n;
          ASSERT_EQ(found.u, expected.u);
        }
}

TEST(Fold, ClippingToANormLeavesASmallerOneAndShrinksALargerOne) {
  EXPECT_EQ(Clip::to_norm(0, 2).factor, 1.0f);
  EXPECT_EQ(Clip::to_norm(1.5, 2).factor, 1.0f);
  EXPECT_FLOAT_EQ(Clip::to_norm(8, 2).factor, 0.25f);
  EXPECT_EQ(Clip::to_norm(8, 2).bound, std::numeric_limits<float>::infinity());
}

struct Chosen {
  std::vector<uint32_t> indices;
  std::vector<float> values;
};

// Compares a selection of a segment with a fold to the selection of a segment that was compensated
// before.
template <typename Select>
void expect_one_sweep_equals_two(const std::vector<std::vector<float>>& drawn, uint64_t n,
                                 uint64_t room, uint64_t scratch_bytes, Select&& select) {
  for (const uint32_t form : kForms) {
    Arrays expected(drawn[0], drawn[1], drawn[2], form, 0.9f, 1.0f);
    expected.compensate_plainly();
    std::vector<uint64_t> scratch(scratch_bytes / 8 + 8);
    void* data = reinterpret_cast<void*>((reinterpret_cast<uintptr_t>(scratch.data()) + 63) & ~63);
    const auto run = [&](Arrays& arrays, const Fold* fold, CodePath path) {
      Chosen chosen{std::vector<uint32_t>(room), std::vector<float>(room)};
      SelectSegment segment{arrays.work.data(),   n, chosen.indices.data(),
                            chosen.values.data(), 0, fold};
      select(segment, SelectScratch{data, scratch_bytes}, path);
      EXPECT_EQ(segment.fold, nullptr);
      chosen.indices.resize(segment.count);
      chosen.values.resize(segment.count);
      return chosen;
    };
    const Chosen two_sweeps = run(expected, nullptr, CodePath::kPortable);
    for (const Place place : kPlaces)
      for (const CodePath path : test::supported_paths()) {
        Arrays found(drawn[0], drawn[1], drawn[2], form, 0.9f, 1.0f);
        found.read(place);
        const Chosen one_sweep = run(found, &found.fold, path);
        ASSERT_EQ(one_sweep.indices, two_sweeps.indices) << "n " << n << ", form " << form;
        ASSERT_EQ(one_sweep.values, two_sweeps.values);
        ASSERT_EQ(found.work, expected.work);
        ASSERT_EQ(found.u, expected.u);
      }
  }
}

std::vector<std::vector<float>> draw(const test::Distribution& distribution, uint64_t n) {
  return {distribution.draw(n, 1), distribution.draw(n, 2), distribution.draw(n, 3)};
}

TEST(Fold, SelectingTheLargestInTheSameSweepEqualsTwoSweeps) {
  for (const auto& distribution : test::distributions())
    for (const uint64_t n : {0, 1, 31, 1000, 20001}) {
      SCOPED_TRACE(distribution.name);
      const auto drawn = draw(distribution, n);
      for (const uint64_t k : {uint64_t{0}, uint64_t{1}, n / 100, n})
        for (const bool roomy : {true, false})  // too little scratch: three more passes
          expect_one_sweep_equals_two(
              drawn, n, std::min(n, k), roomy ? select_scratch_bytes(n, k) : kSelectFixedBytes,
              [&](SelectSegment& segment, SelectScratch scratch, CodePath path) {
                select_largest({&segment, 1}, k, scratch, path);
              });
    }
}

TEST(Fold, SelectingOfWhatIsStreamedEqualsTwoSweeps) {
  const uint64_t n = kStreamed, k = n / 100;
  const auto drawn = draw({"heavy_tailed", test::heavy_tailed}, n);
  for (const bool roomy : {true, false})
    expect_one_sweep_equals_two(drawn, n, k, roomy ? select_scratch_bytes(n, k) : kSelectFixedBytes,
                                [&](SelectSegment& segment, SelectScratch scratch, CodePath path) {
                                  select_largest({&segment, 1}, k, scratch, path);
                                });
}

TEST(Fold, SelectingAboveInTheSameSweepEqualsTwoSweeps) {
  for (const auto& distribution : test::distributions())
    for (const uint64_t n : {0, 1, 31, 1000, 5000}) {
      SCOPED_TRACE(distribution.name);
      const auto drawn = draw(distribution, n);
      for (const float threshold : {0.0f, 0.5f, 3.0f})
        for (const uint64_t capacity : {uint64_t{0}, n / 50, n})
          expect_one_sweep_equals_two(
              drawn, n, capacity, select_scratch_bytes(n, capacity),
              [&](SelectSegment& segment, SelectScratch scratch, CodePath path) {
                select_above(segment, threshold, capacity, scratch, path);
              });
    }
}

// look(arrays, fold, path) returns numbers; the numbers and the arrays must be equal to the results
// of two sweeps.
template <typename Look>
void expect_looking_equals_two_sweeps(Look&& look) {
  for (const auto& distribution : test::distributions())
    for (const uint64_t n :
         {uint64_t{0}, uint64_t{1}, uint64_t{31}, uint64_t{1000}, uint64_t{20001}, kStreamed})
      for (const uint32_t form : kForms) {
        if (n == kStreamed && distribution.name != "heavy_tailed") continue;
        Arrays expected(distribution, n, form, 0.9f, 1.0f);
        expected.compensate_plainly();
        for (const Place place : kPlaces)
          for (const CodePath path : test::supported_paths()) {
            Arrays found(distribution, n, form, 0.9f, 1.0f);
            found.read(place);
            ASSERT_EQ(look(found, &found.fold, path), look(expected, nullptr, path))
                << distribution.name << " of " << n << ", form " << form;
            ASSERT_EQ(found.work, expected.work);
            ASSERT_EQ(found.u, expected.u);
          }
      }
}

TEST(Fold, StatisticsInTheSameSweepEqualTwoSweeps) {
  expect_looking_equals_two_sweeps([](Arrays& arrays, const Fold* fold, CodePath path) {
    const Statistics facts =
        statistics(arrays.work.data(), arrays.work.size(), {.logs = true, .fold = fold}, path);
    return std::vector<double>{facts.sum_of_magnitudes, facts.sum_of_squares, facts.sum_of_logs,
                               static_cast<double>(facts.nonzero), double{facts.largest}};
  });
}

TEST(Fold, ExceedancesInTheSameSweepEqualTwoSweeps) {
  expect_looking_equals_two_sweeps([](Arrays& arrays, const Fold* fold, CodePath path) {
    const Exceedances facts = exceedances(arrays.work.data(), arrays.work.size(), 0.5f, path, fold);
    return std::vector<double>{facts.sum, facts.squares, static_cast<double>(facts.count)};
  });
}

TEST(Fold, PackingSignsInTheSameSweepEqualsTwoSweeps) {
  expect_looking_equals_two_sweeps([](Arrays& arrays, const Fold* fold, CodePath path) {
    const uint64_t n = arrays.work.size();
    std::vector<uint64_t> words(sign_words(n));
    std::vector<uint32_t> zeros(n);
    zeros.resize(pack_signs(arrays.work.data(), n, words.data(), zeros.data(), n, path, fold));
    words.insert(words.end(), zeros.begin(), zeros.end());
    return words;
  });
}

TEST(Fold, SegmentsWithAndWithoutAFoldCompete) {
  const test::Distribution distribution{"heavy_tailed", test::heavy_tailed};
  for (const CodePath path : test::supported_paths()) {
    Arrays folded(distribution, 30000, PENSTOCK_FORM_NESTEROV, 0.9f, 1.0f);
    Arrays before(distribution, 30000, PENSTOCK_FORM_NESTEROV, 0.9f, 1.0f);
    before.compensate_plainly();
    const std::vector<float> other = test::heavy_tailed(20000, 8);
    std::vector<uint32_t> indices(4 * 500);
    std::vector<uint64_t> scratch(select_scratch_bytes(50000, 500) / 8 + 8);
    const SelectScratch room{
        reinterpret_cast<void*>((reinterpret_cast<uintptr_t>(scratch.data()) + 63) & ~63),
        select_scratch_bytes(50000, 500)};
    SelectSegment one[] = {{folded.work.data(), 30000, indices.data(), nullptr, 0, &folded.fold},
                           {other.data(), 20000, indices.data() + 500, nullptr}};
    SelectSegment two[] = {{before.work.data(), 30000, indices.data() + 1000, nullptr},
                           {other.data(), 20000, indices.data() + 1500, nullptr}};
    select_largest(one, 500, room, path);
    select_largest(two, 500, room, path);
    EXPECT_EQ(one[0].count, two[0].count);
    EXPECT_EQ(folded.work, before.work);
    EXPECT_TRUE(std::equal(indices.begin(), indices.begin() + 1000, indices.begin() + 1000));
  }
}

}  // namespace
}  // namespace penstock::kernels::fold_test
