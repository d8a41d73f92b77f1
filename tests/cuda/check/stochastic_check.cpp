// Stochastic rounding: equal random words and so equal bits, also across the end of a block of
// words.
#include <kernels/cuda/stochastic.hpp>
#include <kernels/sign.hpp>
#include <kernels/stochastic.hpp>
#include "check.hpp"

#include <algorithm>
#include <cmath>

namespace penstock::kernels::cuda::check {
namespace {

constexpr CodePath kPath = CodePath::kPortable;
constexpr RandomKey kKey = random_key({1, 2, 3, 4});
// The second value is 500 elements before the next block of random words.
constexpr uint64_t kFirsts[] = {0, (uint64_t{1} << 32) - 512};

struct Runs {
  uint64_t n, run, count;
  Runs(uint64_t n_, uint64_t run_)
      : n(n_), run(run_), count(run == 0 || n == 0 ? 1 : (n + run - 1) / run) {}
  uint64_t begin(uint64_t r) const { return r * run; }
  uint64_t size(uint64_t r) const { return run == 0 ? n : std::min(run, n - begin(r)); }
};

void check_steps(const std::vector<float>& largest, const std::vector<Moments>& moments) {
  for (const uint32_t levels : {1u, 7u, 127u}) {
    std::vector<float> of_largest, of_norm;
    for (const float reach : largest) of_largest.push_back(kernels::grid_step(reach, levels));
    for (const Moments& m : moments)
      of_norm.push_back(kernels::grid_step(std::sqrt(m.sum_of_squares), levels));
    const Array<float> reaches(largest);
    const Array<Moments> sums(moments);
    Array<float> steps(largest.size());
    both_ways([&] { steps.spoil(); },
              [&](void* s) {
                return grid_steps_of_largest(reaches.data(), largest.size(), levels, steps.data(),
                                             s);
              },
              [&] { REQUIRE(same_bits(steps.host(), of_largest), "steps", levels); });
    both_ways([&] { steps.spoil(); },
              [&](void* s) {
                return grid_steps_of_norm(sums.data(), moments.size(), levels, steps.data(), s);
              },
              [&] { REQUIRE(same_bits(steps.host(), of_norm), "steps of norms", levels); });
  }
}

void check_clipped_scales(const Moments& moments, uint64_t n) {
  for (const double clip : {0.0, 0.5, 2.5, 1e6}) {
    const double bound = clip * std::sqrt(moments.sum_of_squares / static_cast<double>(n));
    const bool clips = clip > 0 && moments.largest > 0 && bound < double{moments.largest};
    const float expected = clips ? static_cast<float>(bound) : moments.largest;
    const Array<Moments> sums(std::vector<Moments>{moments});
    Array<float> scale(1);
    both_ways([&] { scale.spoil(); },
              [&](void* s) { return clipped_scale(sums.data(), n, clip, scale.data(), s); },
              [&] { REQUIRE(scale.host()[0] == expected, "clipped scale", clip, n); });
  }
}

void check_levels(const Input& input, const Runs& runs, const std::vector<float>& largest,
                  uint32_t levels, uint64_t first, bool take_out) {
  const std::string what = describe(input.name, runs.n, runs.run, levels);
  std::vector<float> expected = input.x, grid_steps, sum(runs.n, 0.5f);
  std::vector<uint8_t> expected_codes(runs.n);
  for (uint64_t r = 0; r < runs.count; ++r) {
    const uint64_t at = runs.begin(r);
    grid_steps.push_back(kernels::grid_step(largest[r], levels));
    kernels::round_to_levels(expected.data() + at, runs.size(r), {grid_steps[r], levels}, kKey,
                             first + at, take_out, expected_codes.data() + at, kPath);
    kernels::add_levels(expected_codes.data() + at, runs.size(r), grid_steps[r], take_out,
                        sum.data() + at, kPath);
  }
  Array<float> x(runs.n), out(runs.n), steps(grid_steps);
  Array<uint8_t> codes(runs.n);
  both_ways([&] { x.put(input.x), codes.spoil(), out.put(std::vector<float>(runs.n, 0.5f)); },
            [&](void* s) {
              const int32_t error = round_to_levels(x.data(), runs.n, runs.run, steps.data(),
                                                    levels, kKey, first, take_out, codes.data(), s);
              if (error != 0) return error;
              return add_levels(codes.data(), runs.n, runs.run, steps.data(), take_out, out.data(),
                                s);
            },
            [&] {
              REQUIRE(same_bits(codes.host(), expected_codes), what);
              REQUIRE(same_bits(x.host(), expected), what);
              REQUIRE(same_bits(out.host(), sum), what);
            });
}

void check_powers(const Input& input, const Runs& runs, const std::vector<float>& largest,
                  uint64_t first, bool take_out) {
  const std::string what = describe(input.name, runs.n, runs.run);
  std::vector<float> expected = input.x, sum(runs.n, 0.5f);
  std::vector<uint8_t> expected_codes(runs.n);
  std::vector<uint8_t> expected_bases;
  for (uint64_t r = 0; r < runs.count; ++r) {
    const uint64_t at = runs.begin(r);
    expected_bases.push_back(static_cast<uint8_t>(kernels::power_base(largest[r])));
    kernels::round_to_powers(expected.data() + at, runs.size(r), expected_bases[r], kKey,
                             first + at, take_out, expected_codes.data() + at, kPath);
    kernels::add_powers(expected_codes.data() + at, runs.size(r), expected_bases[r], take_out,
                        sum.data() + at, kPath);
  }
  const Array<float> reaches(largest);
  Array<float> x(runs.n), out(runs.n);
  Array<uint8_t> bases(runs.count);
  Array<uint8_t> codes(runs.n);
  both_ways(
      [&] {
        x.put(input.x), bases.spoil(), codes.spoil(), out.put(std::vector<float>(runs.n, 0.5f));
      },
      [&](void* s) {
        int32_t error = power_bases(reaches.data(), runs.count, bases.data(), s);
        if (error == 0)
          error = round_to_powers(x.data(), runs.n, runs.run, bases.data(), kKey, first, take_out,
                                  codes.data(), s);
        if (error != 0) return error;
        return add_powers(codes.data(), runs.n, runs.run, bases.data(), take_out, out.data(), s);
      },
      [&] {
        REQUIRE(same_bits(bases.host(), expected_bases), what);
        REQUIRE(same_bits(codes.host(), expected_codes), what);
        REQUIRE(same_bits(x.host(), expected), what);
        REQUIRE(same_bits(out.host(), sum), what);
      });
}

void check_choices(const Input& input, float scale, uint64_t first, bool take_out) {
  const uint64_t n = input.x.size();
  const std::string what = describe(input.name, n, scale);
  std::vector<float> expected = input.x;
  std::vector<uint64_t> below(sign_words(n)), kept(sign_words(n));
  kernels::round_to_signs(expected.data(), n, scale, kKey, first, take_out, below.data(),
                          kept.data(), kPath);
  Array<float> x(n), scale_at(std::vector<float>{scale});
  Array<uint64_t> negative(sign_words(n)), nonzero(sign_words(n));
  both_ways([&] { x.put(input.x), negative.spoil(), nonzero.spoil(); },
            [&](void* s) {
              return round_to_signs(x.data(), n, scale_at.data(), kKey, first, take_out,
                                    negative.data(), nonzero.data(), s);
            },
            [&] {
              REQUIRE(same_bits(negative.host(), below), what);
              REQUIRE(same_bits(nonzero.host(), kept), what);
              REQUIRE(same_bits(x.host(), expected), what);
            });
}

void check_input(const Input& input, uint64_t run) {
  const Runs runs(input.x.size(), run);
  std::vector<float> largest;
  std::vector<Moments> moments;
  for (uint64_t r = 0; r < runs.count; ++r) {
    const float* const x = input.x.data() + runs.begin(r);
    largest.push_back(kernels::largest_magnitude(x, runs.size(r), kPath));
    moments.push_back(kernels::moments(x, runs.size(r), kPath));
  }
  check_steps(largest, moments);
  check_clipped_scales(moments[0], runs.size(0));
  for (const uint64_t first : kFirsts)
    for (const bool take_out : {false, true}) {
      for (const uint32_t levels : {1u, 127u})
        check_levels(input, runs, largest, levels, first, take_out);
      check_powers(input, runs, largest, first, take_out);
      if (run == 0 && largest[0] > 0) check_choices(input, largest[0] / 2, first, take_out);
    }
}

}  // namespace

void check_stochastic(const Extent& extent) {
  for (const uint64_t n : extent.sizes)
    for (const Input& input : extent.inputs(n, true)) check_input(input, 0);
  for (const uint64_t n : extent.few_sizes)
    for (const Input& input : extent.inputs(n, true))
      for (const uint64_t run : {64, 512, 3000}) check_input(input, run);
}

}  // namespace penstock::kernels::cuda::check
