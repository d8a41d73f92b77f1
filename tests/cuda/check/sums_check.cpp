// Sums, extremes and counts. Sums in double have another order than on the CPU, so they are
// compared within the bound of reduce.hpp.
#include <kernels/cuda/reduce.hpp>
#include <kernels/norm.hpp>
#include <kernels/select.hpp>
#include "check.hpp"

#include <algorithm>
#include <cmath>

namespace penstock::kernels::cuda::check {
namespace {

constexpr CodePath kPath = CodePath::kPortable;

// The largest difference between two orders of n terms. `magnitudes` is the sum of their
// magnitudes.
double bound(uint64_t n, double magnitudes) {
  const auto terms = static_cast<double>(n);
  return 0x1p-52 * (terms / 16 + terms / 4194304 + 80) * magnitudes;
}
void near(double got, double expected, double most, const std::string& what) {
  REQUIRE(std::fabs(got - expected) <= most, what, got, expected, most);
}

// Runs one reduction directly and as a graph, and gives its result to `verify`.
template <typename Result, typename Run, typename Verify>
void reduced(uint64_t n, uint64_t run, uint64_t n_results, Run&& run_it, Verify&& verify) {
  Array<Result> result(n_results);
  Scratch scratch(reduce_workspace_bytes(n, run));
  both_ways([&] { result.spoil(), scratch.spoil(); },
            [&](void* stream) { return run_it(result.data(), scratch.get(), stream); },
            [&] { verify(result.host()); });
}

void check_norms(const Input& input) {
  const uint64_t n = input.x.size();
  const std::string what = describe(input.name, n);
  Array<float> x(input.x);
  const double squares = kernels::sum_of_squares(input.x.data(), n, kPath);
  const double magnitudes = kernels::sum_of_magnitudes(input.x.data(), n, kPath);
  reduced<double>(
      n, 0, 1,
      [&](double* to, Workspace w, void* s) { return sum_of_squares(x.data(), n, to, w, s); },
      [&](const auto& got) { near(got[0], squares, bound(n, squares), what); });
  reduced<double>(
      n, 0, 1,
      [&](double* to, Workspace w, void* s) { return sum_of_magnitudes(x.data(), n, to, w, s); },
      [&](const auto& got) { near(got[0], magnitudes, bound(n, magnitudes), what); });
}

void check_runs(const Input& input, uint64_t run) {
  const uint64_t n = input.x.size();
  const std::string what = describe(input.name, n, run);
  const uint64_t n_runs = run == 0 || n == 0 ? 1 : (n + run - 1) / run;
  Array<float> x(input.x);
  std::vector<Moments> expected;
  std::vector<float> largest;
  std::vector<double> magnitudes;
  for (uint64_t r = 0; r < n_runs; ++r) {
    const uint64_t begin = r * run, count = run == 0 ? n : std::min(run, n - begin);
    expected.push_back(kernels::moments(input.x.data() + begin, count, kPath));
    largest.push_back(kernels::largest_magnitude(input.x.data() + begin, count, kPath));
    magnitudes.push_back(kernels::sum_of_magnitudes(input.x.data() + begin, count, kPath));
  }
  reduced<Moments>(
      n, run, n_runs,
      [&](Moments* to, Workspace w, void* s) { return moments(x.data(), n, run, to, w, s); },
      [&](const std::vector<Moments>& got) {
        for (uint64_t r = 0; r < n_runs; ++r) {
          near(got[r].sum, expected[r].sum, bound(n, magnitudes[r]), what);
          near(got[r].sum_of_squares, expected[r].sum_of_squares,
               bound(n, expected[r].sum_of_squares), what);
          REQUIRE(got[r].largest == expected[r].largest, what);
        }
      });
  reduced<float>(
      n, run, n_runs,
      [&](float* to, Workspace w, void* s) {
        return largest_magnitude(x.data(), n, run, to, w, s);
      },
      [&](const std::vector<float>& got) { REQUIRE(same_bits(got, largest), what); });
}

// The order of a sum depends only on the number of elements. So a run gives equal bits alone and
// next to other runs.
void check_runs_alone(const Input& input, uint64_t run) {
  const uint64_t n = input.x.size();
  if (n <= run) return;
  const uint64_t n_runs = (n + run - 1) / run;
  const std::string what = describe(input.name, n, run);
  const Array<float> x(input.x);
  const auto sums_of = [&](const float* from, uint64_t count, uint64_t length, uint64_t results) {
    std::vector<double> sums;
    reduced<Moments>(
        count, length, results,
        [&](Moments* to, Workspace w, void* s) { return moments(from, count, length, to, w, s); },
        [&](const std::vector<Moments>& got) {
          sums.clear();
          for (const Moments& of : got) {
            sums.push_back(of.sum);
            sums.push_back(of.sum_of_squares);
            sums.push_back(of.largest);
          }
        });
    return sums;
  };
  const std::vector<double> together = sums_of(x.data(), n, run, n_runs);
  for (const uint64_t r : {uint64_t{0}, n_runs / 2, n_runs - 1}) {
    const std::vector<double> of_run(together.begin() + static_cast<std::ptrdiff_t>(3 * r),
                                     together.begin() + static_cast<std::ptrdiff_t>(3 * r + 3));
    const uint64_t begin = r * run;
    REQUIRE(same_bits(sums_of(x.data() + begin, std::min(run, n - begin), 0, 1), of_run), what, r);
  }
}

void check_by_sign(const Input& input, uint64_t run) {
  const uint64_t n = input.x.size();
  const std::string what = describe(input.name, n, run);
  const uint64_t n_runs = run == 0 || n == 0 ? 1 : (n + run - 1) / run;
  Array<float> x(input.x);
  std::vector<SumsBySign> expected;
  for (uint64_t r = 0; r < n_runs; ++r) {
    const uint64_t begin = r * run, count = run == 0 ? n : std::min(run, n - begin);
    expected.push_back(kernels::sums_by_sign(input.x.data() + begin, count, kPath));
  }
  reduced<SumsBySign>(
      n, run, n_runs,
      [&](SumsBySign* to, Workspace w, void* s) {
        return sums_by_sign(x.data(), n, run, to, w, s);
      },
      [&](const auto& got) {
        for (uint64_t r = 0; r < n_runs; ++r) {
          near(got[r].positive, expected[r].positive, bound(n, expected[r].positive), what);
          near(got[r].negative, expected[r].negative, bound(n, -expected[r].negative), what);
          REQUIRE(got[r].n_positive == expected[r].n_positive, what);
          REQUIRE(got[r].n_negative == expected[r].n_negative, what);
        }
      });
}

void check_exceedances(const Input& input, float limit) {
  const uint64_t n = input.x.size();
  const std::string what = describe(input.name, n, limit);
  Array<float> x(input.x), threshold(std::vector<float>{limit});
  const Exceedances expected = kernels::exceedances(input.x.data(), n, limit, kPath);
  reduced<Exceedances>(
      n, 0, 1,
      [&](Exceedances* to, Workspace w, void* s) {
        return exceedances(x.data(), n, threshold.data(), to, w, s);
      },
      [&](const auto& got) {
        near(got[0].sum, expected.sum, bound(n, expected.sum), what);
        near(got[0].squares, expected.squares, bound(n, expected.squares), what);
        REQUIRE(got[0].count == expected.count, what);
      });
}

void check_statistics(const Input& input, bool logs) {
  const uint64_t n = input.x.size();
  const std::string what = describe(input.name, n, logs ? "logs" : "");
  Array<float> x(input.x);
  const Statistics expected = kernels::statistics(
      input.x.data(), n, {.thresholds = {}, .counts = nullptr, .logs = logs}, kPath);
  reduced<Statistics>(
      n, 0, 1,
      [&](Statistics* to, Workspace w, void* s) { return statistics(x.data(), n, logs, to, w, s); },
      [&](const auto& got) {
        near(got[0].sum_of_magnitudes, expected.sum_of_magnitudes,
             bound(n, expected.sum_of_magnitudes), what);
        near(got[0].sum_of_squares, expected.sum_of_squares, bound(n, expected.sum_of_squares),
             what);
        // The CPU multiplies mantissas in float: an error of 1e-7 for each entry.
        near(got[0].sum_of_logs, expected.sum_of_logs, 1e-7 * static_cast<double>(n), what);
        REQUIRE(got[0].nonzero == expected.nonzero, what);
        REQUIRE(got[0].largest == expected.largest, what);
      });
}

void check_counts(const Input& input, uint64_t n_thresholds) {
  const uint64_t n = input.x.size();
  std::vector<float> limits{0.5f, 0.0f, -1.0f, 1e-42f, std::nanf(""), INFINITY};
  while (limits.size() < n_thresholds) limits.push_back(static_cast<float>(limits.size()) / 8);
  limits.resize(n_thresholds);
  std::vector<uint64_t> expected(n_thresholds);
  kernels::count_above(input.x.data(), n, limits, expected.data(), kPath);
  Array<float> x(with_other_nans(input.x)), thresholds(with_other_nans(limits));
  Array<uint64_t> counts(n_thresholds);
  both_ways([&] { counts.spoil(); },
            [&](void* stream) {
              return count_above(x.data(), n, thresholds.data(), n_thresholds, counts.data(),
                                 stream);
            },
            [&] { REQUIRE(same_bits(counts.host(), expected), input.name, n, n_thresholds); });
}

}  // namespace

void check_sums(const Extent& extent) {
  for (const uint64_t n : extent.sizes) {
    for (const Input& input : extent.inputs(n, true)) {
      check_norms(input);
      check_runs(input, 0);
      check_by_sign(input, 0);
      for (const float limit : {0.0f, 0.5f, 3.0f}) check_exceedances(input, limit);
      for (const bool logs : {false, true}) check_statistics(input, logs);
    }
    for (const Input& input : extent.inputs(n, false))
      for (const uint64_t n_thresholds : {1, 6, 16, 20}) check_counts(input, n_thresholds);
  }
  for (const uint64_t n : extent.few_sizes)
    for (const Input& input : extent.inputs(n, true))
      for (const uint64_t run : {7, 64, 512, 1000, 1025, 20000}) {
        check_runs(input, run);
        check_runs_alone(input, run);
        check_by_sign(input, run);
      }
}

}  // namespace penstock::kernels::cuda::check
