// Low-rank products. Sums are compared with exact sums, within the bound of low_rank.hpp, and every
// run gives equal bits. Operations on single entries have the CPU's bits.
#include <penstock/memory.h>
#include <kernels/cuda/low_rank.hpp>
#include "check.hpp"

#include <cmath>
#include <optional>

namespace penstock::kernels::cuda::check {
namespace {

using low_rank::Shape;
using Floats = std::vector<float>;

constexpr CodePath kPath = CodePath::kPortable;

// Checks that the result has equal bits in every run.
class Repeated {
 public:
  void require_same(const Floats& got, const std::string& what) {
    if (!first_) first_ = got;
    REQUIRE(same_bits(got, *first_), what);
  }

 private:
  std::optional<Floats> first_;
};

// The sums of m[i][j] factor[.][c] along one dimension, in double, which holds every product.
struct Exact {
  std::vector<double> sums, magnitudes;
};
Exact exact_product(const Shape& s, bool transposed, const Floats& m, const Floats& factor) {
  Exact exact;
  exact.sums.resize((transposed ? s.cols : s.rows) * s.rank);
  exact.magnitudes.resize(exact.sums.size());
  for (uint64_t i = 0; i < s.rows; ++i)
    for (uint64_t j = 0; j < s.cols; ++j)
      for (uint64_t c = 0; c < s.rank; ++c) {
        const double entry = double{m[i * s.cols + j]};
        const uint64_t from = (transposed ? i : j) * s.rank + c;
        const uint64_t to = (transposed ? j : i) * s.rank + c;
        exact.sums[to] += entry * double{factor[from]};
        exact.magnitudes[to] += std::fabs(entry * double{factor[from]});
      }
  return exact;
}

void require_near(const Floats& got, const Exact& exact, uint64_t terms, const std::string& what) {
  const double share = 0x1p-24 * (static_cast<double>(terms) / 8 + 82);
  for (uint64_t e = 0; e < got.size(); ++e)
    REQUIRE(std::fabs(double{got[e]} - exact.sums[e]) <= share * exact.magnitudes[e], what, e,
            got[e], exact.sums[e]);
}

// One product. With `form` the product also compensates the matrix.
void check_product(const Shape& s, bool transposed, uint32_t form) {
  const std::string what = describe(transposed ? "transposed" : "", s.rows, s.cols, s.rank, form);
  const uint64_t n = s.rows * s.cols;
  const bool folds = form != PENSTOCK_FORM_NONE;
  const bool has_momentum = folds && form != PENSTOCK_FORM_AFFINE;
  const Floats before = normal(n, 1), gradient = normal(n, 2), velocity = normal(n, 3);
  const Floats factor = normal((transposed ? s.rows : s.cols) * s.rank, 4);
  Floats m = before, u = velocity;
  if (folds)
    kernels::compensate(
        {form, 0.9f, 0.7f, 1.0f / 3, gradient.data(), m.data(), has_momentum ? u.data() : nullptr},
        n, kPath);
  const Exact exact = exact_product(s, transposed, m, factor);

  Array<float> work(before), grad(gradient), momentum(velocity), from(factor);
  Array<float> to(exact.sums.size());
  Scratch scratch(low_rank::multiply_workspace_bytes(s));
  const Fold fold{form,
                  0.9f,
                  0.7f,
                  1.0f / 3,
                  grad.data(),
                  work.data(),
                  has_momentum ? momentum.data() : nullptr};
  Repeated repeated;
  both_ways([&] { work.put(before), momentum.put(velocity), to.spoil(), scratch.spoil(); },
            [&](void* stream) {
              const auto run = transposed ? low_rank::multiply_transposed : low_rank::multiply;
              return run(s, work.data(), from.data(), to.data(), scratch.get(), stream,
                         folds ? &fold : nullptr);
            },
            [&] {
              const Floats got = to.host();
              require_near(got, exact, transposed ? s.rows : s.cols, what);
              repeated.require_same(got, what);
              REQUIRE(same_bits(work.host(), m), what);
              REQUIRE(same_bits(momentum.host(), u), what);
            });
}

class HostScratch {
 public:
  explicit HostScratch(uint64_t floats) : memory_(floats + 16) {}
  float* get() {
    const auto at = reinterpret_cast<uintptr_t>(memory_.data());
    return reinterpret_cast<float*>((at + 63) / 64 * 64);
  }

 private:
  Floats memory_;
};

// Factors with zeros of both signs. Their products and sums keep or lose the sign.
Floats with_zeros(Floats values) {
  for (uint64_t e = 0; e < values.size(); e += 3) values[e] = e % 2 == 0 ? 0.0f : -0.0f;
  return values;
}

void check_expansion(const Shape& s, const Floats& p, const Floats& q) {
  const std::string what = describe("expansion", s.rows, s.cols, s.rank);
  const Floats m = normal(s.rows * s.cols, 7);
  HostScratch host(kernels::low_rank::scratch_floats(s));
  Floats expanded(m.size()), taken = m;
  kernels::low_rank::expand(s, p.data(), q.data(), 0.3f, expanded.data(), host.get(), kPath);
  kernels::low_rank::take_out(s, taken.data(), p.data(), q.data(), host.get(), kPath);

  Array<float> left(p), right(q), out(m.size());
  both_ways([&] { out.spoil(); },
            [&](void* stream) {
              return low_rank::expand(s, left.data(), right.data(), 0.3f, out.data(), stream);
            },
            [&] { REQUIRE(same_bits(out.host(), expanded), what); });
  both_ways([&] { out.put(m); },
            [&](void* stream) {
              return low_rank::take_out(s, out.data(), left.data(), right.data(), stream);
            },
            [&] { REQUIRE(same_bits(out.host(), taken), what); });
}

void check_shape(const Shape& s, const std::vector<uint32_t>& forms) {
  for (const bool transposed : {false, true})
    for (const uint32_t form : forms) check_product(s, transposed, form);
  const Floats p = normal(s.rows * s.rank, 5), q = normal(s.cols * s.rank, 6);
  check_expansion(s, p, q);
  check_expansion(s, with_zeros(p), with_zeros(q));
}

}  // namespace

void check_low_rank(const Extent& extent) {
  // Empty matrices, single rows and columns, broken tiles and stages, all widths of a kernel,
  // factors with more columns than one sweep takes, and sums that are cut into segments in either
  // dimension.
  const Shape shapes[] = {{0, 5, 1},     {5, 0, 2},    {1, 1, 1},    {1, 33, 3},    {33, 1, 1},
                          {17, 130, 2},  {37, 150, 4}, {70, 129, 7}, {19, 257, 12}, {40, 70, 32},
                          {33, 131, 33}, {9, 40, 256}, {3, 600, 4},  {600, 3, 4},   {35, 520, 2},
                          {520, 140, 9}, {290, 270, 5}};
  const bool is_long = extent.sizes.back() > 1u << 20;
  const std::vector<uint32_t> all{PENSTOCK_FORM_NONE, PENSTOCK_FORM_AFFINE,
                                  PENSTOCK_FORM_HEAVY_BALL, PENSTOCK_FORM_NESTEROV};
  uint32_t turn = 0;
  for (const Shape& s : shapes) {
    ++turn;
    check_shape(s, is_long ? all : std::vector<uint32_t>{PENSTOCK_FORM_NONE, turn % 3 + 1});
  }
  if (!is_long) return;
  for (const Shape& s : {Shape{4099, 1031, 8}, Shape{3, 1000003, 4}, Shape{1000003, 3, 4}})
    check_shape(s, all);
}

}  // namespace penstock::kernels::cuda::check
