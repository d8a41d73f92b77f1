// Orthogonalisation. The result is orthonormal, and its first columns span the first columns of the
// input, for all cases of the device's steps. Columns are zero exactly if they are zero on the CPU.
// Every run gives equal bits.
#include <kernels/cuda/low_rank.hpp>
#include "check.hpp"

#include <algorithm>
#include <cmath>
#include <optional>

namespace penstock::kernels::cuda::check {
namespace {

using Floats = std::vector<float>;

// A factor, column by column, in double.
struct Columns {
  Columns(const Floats& p, uint64_t rows_, uint64_t rank_)
      : rows(rows_), rank(rank_), values(p.size()) {
    for (uint64_t i = 0; i < rows; ++i)
      for (uint64_t j = 0; j < rank; ++j) values[j * rows + i] = double{p[i * rank + j]};
  }
  double* column(uint64_t j) { return values.data() + j * rows; }
  double dot(const double* a, const double* b) const {
    double sum = 0;
    for (uint64_t i = 0; i < rows; ++i) sum += a[i] * b[i];
    return sum;
  }
  bool is_zero(uint64_t j) {
    return std::all_of(column(j), column(j) + rows, [](double value) { return value == 0; });
  }
  uint64_t rows, rank;
  std::vector<double> values;
};

void require_orthonormal(Columns& q, double most, const std::string& what) {
  for (uint64_t j = 0; j < q.rank; ++j)
    for (uint64_t k = 0; k <= j; ++k) {
      const double expected = j == k && !q.is_zero(j) ? 1.0 : 0.0;
      REQUIRE(std::fabs(q.dot(q.column(j), q.column(k)) - expected) <= most, what, j, k);
    }
}

// Column j of p must be a sum of the first j + 1 columns of q, and column j must have a positive
// weight.
void require_same_span(Columns& p, Columns& q, const std::string& what) {
  double longest = 0;
  for (uint64_t j = 0; j < p.rank; ++j) {
    const double length = std::sqrt(p.dot(p.column(j), p.column(j)));
    if (std::isfinite(length)) longest = std::max(longest, length);
  }
  for (uint64_t j = 0; j < p.rank; ++j) {
    double* const rest = p.column(j);
    const double length = std::sqrt(p.dot(rest, rest));
    if (!std::isfinite(length)) continue;
    REQUIRE(p.dot(rest, q.column(j)) >= 0, what, j);
    for (uint64_t k = 0; k <= j; ++k) {
      const double weight = p.dot(rest, q.column(k));
      for (uint64_t i = 0; i < p.rows; ++i) rest[i] -= weight * q.column(k)[i];
    }
    const double most = q.is_zero(j) ? 2e-7 * std::max(length, longest) : 1e-5 * length;
    REQUIRE(std::sqrt(p.dot(rest, rest)) <= most, what, j);
  }
}

Floats on_cpu(Floats p, uint64_t rows, uint64_t rank, uint64_t& zero_columns) {
  Floats memory(kernels::low_rank::orthogonalise_scratch_floats(rows, rank) + 16);
  const auto at = reinterpret_cast<uintptr_t>(memory.data());
  zero_columns = kernels::low_rank::orthogonalise(
      p.data(), rows, rank, reinterpret_cast<float*>((at + 63) / 64 * 64), CodePath::kPortable);
  return p;
}

// `most` is the largest error of lengths and products of columns.
void check_case(const char* name, const Floats& p, uint64_t rows, uint64_t rank, double most) {
  const std::string what = describe(name, rows, rank);
  uint64_t expected_zeros = 0;
  const Floats expected = on_cpu(p, rows, rank, expected_zeros);
  Array<float> work(p);
  Array<uint64_t> zeros(1);
  Scratch scratch(low_rank::orthogonalise_workspace_bytes(rows, rank));
  std::optional<Floats> first;
  both_ways([&] { work.put(p), zeros.spoil(), scratch.spoil(); },
            [&](void* stream) {
              return low_rank::orthogonalise(work.data(), rows, rank, zeros.data(), scratch.get(),
                                             stream);
            },
            [&] {
              const Floats got = work.host();
              if (!first) first = got;
              REQUIRE(same_bits(got, *first), what);
              REQUIRE(zeros.host()[0] == expected_zeros, what, zeros.host()[0], expected_zeros);
            });
  Columns before(p, rows, rank), q(*first, rows, rank), cpu(expected, rows, rank);
  for (uint64_t j = 0; j < rank; ++j) REQUIRE(q.is_zero(j) == cpu.is_zero(j), what, j);
  require_orthonormal(q, most, what);
  require_same_span(before, q, what);
}

// Columns that are equal up to a share of `apart`.
Floats nearly_dependent(uint64_t rows, uint64_t rank, float apart) {
  const Floats common = normal(rows, 5);
  Floats p = normal(rows * rank, 6);
  for (uint64_t e = 0; e < p.size(); ++e)
    p[e] = common[e / rank] + (e % rank == 0 ? 0.0f : apart * p[e]);
  return p;
}

// `value(i, j, entry)`, for normal entries.
template <typename Value>
Floats changed(uint64_t rows, uint64_t rank, Value&& value) {
  Floats p = normal(rows * rank, 8);
  for (uint64_t e = 0; e < p.size(); ++e) p[e] = value(e / rank, e % rank, p[e]);
  return p;
}

// The rules of Gram-Schmidt for columns that are zero, dependent or not finite.
void check_awkward() {
  const uint64_t rows = 300, rank = 5;
  const auto check = [&](const char* name, const Floats& p) {
    check_case(name, p, rows, rank, 1e-5);
  };
  Floats dependent = normal(rows * rank, 7);
  for (uint64_t i = 0; i < rows; ++i) {
    float* const row = dependent.data() + i * rank;
    row[1] = 0;
    row[3] = 2 * row[0] - 0.5f * row[2];
  }
  check("dependent", dependent);
  check("repeated", changed(rows, rank, [](uint64_t i, uint64_t, float) {
          return std::sin(static_cast<float>(i));
        }));
  check("zeros", Floats(rows * rank, -0.0f));
  check("nearly dependent", nearly_dependent(rows, rank, 2e-6f));
  check("not finite", changed(rows, rank, [](uint64_t i, uint64_t j, float entry) {
          if (j == 1 && i == 17) return std::nanf("");
          return j == 3 && i == 299 ? -INFINITY : entry;
        }));
  check("of different lengths", changed(rows, rank, [](uint64_t, uint64_t j, float entry) {
          return entry * std::pow(30.0f, -static_cast<float>(j));
        }));
  check("of a length that is lost", changed(rows, rank, [](uint64_t, uint64_t j, float entry) {
          return j == 2 ? entry * 1e-9f : entry;
        }));
  check("subnormal", changed(rows, rank, [](uint64_t, uint64_t, float entry) {
          return std::round(entry * 64) * 0x1p-149f;
        }));
  check("largest", changed(rows, rank, [](uint64_t, uint64_t j, float entry) {
          return std::copysign(j == 0 ? 3.4e38f : 1e38f, entry);
        }));
  check_case("more columns than rows", normal(4 * 7, 9), 4, 7, 1e-5);
}

}  // namespace

void check_orthogonalise(const Extent& extent) {
  const struct {
    uint64_t rows, rank;
  } shapes[] = {{0, 3}, {1, 1}, {5, 2}, {1000, 1}, {1000, 4}, {300, 33}, {270, 60}};
  for (const auto& [rows, rank] : shapes)
    check_case("normal", normal(rows * rank, 1), rows, rank, 2e-7);
  // Without the second pass the products would be less exact.
  for (const float apart : {1.2e-5f, 2e-5f, 1e-3f, 0.1f})
    check_case("nearly dependent", nearly_dependent(1500, 8, apart), 1500, 8, 1e-7);
  check_awkward();
  if (extent.sizes.back() <= 1u << 20) return;
  check_case("normal", normal(400 * 256, 1), 400, 256, 1e-6);
  check_case("normal", normal(1000003, 1), 1000003, 1, 1e-6);
  check_case("normal", normal(300001 * 8, 1), 300001, 8, 1e-6);
  check_case("nearly dependent", nearly_dependent(100003, 32, 1e-3f), 100003, 32, 1e-6);
}

}  // namespace penstock::kernels::cuda::check
