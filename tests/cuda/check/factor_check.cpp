// Factors that are kept between steps. The device draws, keeps or renews exactly as the CPU does.
// The factors are near the CPU's factors, and every run gives equal bits.
#include <kernels/cuda/factor.hpp>
#include <kernels/cuda/low_rank.hpp>
#include "check.hpp"

#include <cmath>
#include <optional>

namespace penstock::kernels::cuda::check {
namespace {

using Floats = std::vector<float>;

constexpr FactorSource kSource{5, 6, 7};
// Columns are orthonormal within 1e-5 in both places. Random factors are well-conditioned, so the
// entries differ by about as much.
constexpr double kNear = 2e-5;

struct Size {
  uint64_t rows, rank;
};

class HostScratch {
 public:
  explicit HostScratch(const Size& size)
      : memory_(kernels::low_rank::orthogonalise_scratch_floats(size.rows, size.rank) + 16) {}
  float* get() {
    const auto at = reinterpret_cast<uintptr_t>(memory_.data());
    return reinterpret_cast<float*>((at + 63) / 64 * 64);
  }

 private:
  Floats memory_;
};

Floats drawn_on_cpu(const Size& size) {
  Floats factor(size.rows * size.rank);
  HostScratch scratch(size);
  kernels::draw_factor(factor.data(), size.rows, size.rank, kSource, scratch.get(),
                       CodePath::kPortable);
  return factor;
}

Floats renewed_on_cpu(Floats factor, const Size& size) {
  HostScratch scratch(size);
  kernels::renew_factor(factor.data(), size.rows, size.rank, kSource, scratch.get(),
                        CodePath::kPortable);
  return factor;
}

// The result of queue(factor, workspace, stream) on `before` is near `expected`. With `exact` the
// bits are equal.
template <typename Queue>
void check_factor(const std::string& what, const Size& size, const Floats& before,
                  const Floats& expected, bool exact, const Queue& queue) {
  Array<float> factor(before);
  Scratch scratch(low_rank::factor_workspace_bytes(size.rows, size.rank));
  std::optional<Floats> first;
  both_ways([&] { factor.put(before), scratch.spoil(); },
            [&](void* stream) { return queue(factor.data(), scratch.get(), stream); },
            [&] {
              const Floats got = factor.host();
              if (!first) first = got;
              REQUIRE(same_bits(got, *first), what, size.rows, size.rank);
              if (exact) REQUIRE(same_bits(got, expected), what, size.rows, size.rank);
              for (uint64_t e = 0; e < got.size(); ++e)
                REQUIRE(std::fabs(double{got[e]} - double{expected[e]}) <= kNear, what, size.rows,
                        size.rank, e, got[e], expected[e]);
            });
}

void check_drawing(const Size& size) {
  const uint64_t n = size.rows * size.rank;
  const Floats drawn = drawn_on_cpu(size), dirt(n, 0.25f), kept = normal(n, 3);
  check_factor("drawn", size, dirt, drawn, false, [&](float* factor, Workspace space, void* s) {
    return low_rank::draw_factor(factor, size.rows, size.rank, kSource, space, s);
  });
  const auto check_use = [&](const char* what, const Floats& state, const Floats& expected,
                             bool exact) {
    const Array<float> from(state);
    check_factor(what, size, dirt, expected, exact, [&](float* factor, Workspace space, void* s) {
      return low_rank::use_factor(from.data(), factor, size.rows, size.rank, kSource, space, s);
    });
    REQUIRE(same_bits(from.host(), state), what, "the state stays");
  };
  Floats unused(n);
  for (uint64_t e = 0; e < n; e += 2) unused[e] = -0.0f;
  check_use("first use", unused, drawn, false);
  check_use("use of what is kept", kept, kept, true);
  if (n == 0) return;
  unused.back() = 1e-45f;  // one entry is enough, here the last
  check_use("use of one entry", unused, unused, true);
}

void check_keeping(const Size& size) {
  const uint64_t n = size.rows * size.rank;
  const Floats state = normal(n, 4);
  const auto check_keep = [&](const char* what, const Floats& sum, const Floats& expected,
                              bool exact) {
    const Array<float> from(sum);
    check_factor(what, size, state, expected, exact, [&](float* factor, Workspace space, void* s) {
      return low_rank::keep_factor(from.data(), factor, size.rows, size.rank, kSource, space, s);
    });
    REQUIRE(same_bits(from.host(), sum), what, "the sum stays");
  };
  const Floats sum = normal(n, 5);
  check_keep("kept", sum, renewed_on_cpu(sum, size), false);
  check_keep("a sum of zeros", Floats(n, -0.0f), state, true);
  Floats dead = sum;  // zeros in every second column, and a NaN
  for (uint64_t e = 0; e < n; ++e)
    if (e % size.rank % 2 == 1) dead[e] = 0;
  if (n > 0) dead[0] = std::nanf("");
  check_keep("with dead columns", dead, renewed_on_cpu(dead, size), false);
}

void refuse_factors() {
  Array<float> state(100), other(100);
  const uint64_t bytes = low_rank::factor_workspace_bytes(50, 2);
  Scratch scratch(bytes);
  const auto refused = [&](const float* from, uint64_t rank, Workspace workspace, const char* why) {
    REQUIRE(low_rank::use_factor(from, other.data(), 50, rank, kSource, workspace, nullptr) ==
                cudaErrorInvalidValue,
            why);
    REQUIRE(low_rank::keep_factor(from, other.data(), 50, rank, kSource, workspace, nullptr) ==
                cudaErrorInvalidValue,
            why);
  };
  refused(state.data(), 0, scratch.get(), "rank");
  refused(state.data(), low_rank::kMostRank + 1, scratch.get(), "rank");
  refused(nullptr, 2, scratch.get(), "no factor");
  refused(state.data(), 2, {scratch.get().data, bytes - 1}, "a workspace too small");
  refused(state.data(), 2, {nullptr, bytes}, "no workspace");
  REQUIRE(low_rank::draw_factor(state.data(), 50, 0, kSource, scratch.get(), nullptr) ==
              cudaErrorInvalidValue,
          "rank");
}

}  // namespace

void check_factors(const Extent& extent) {
  refuse_factors();
  std::vector<Size> sizes{{0, 3}, {1, 1}, {5, 2}, {64, 4}, {1000, 4}, {2049, 1}, {300, 33}};
  if (extent.sizes.back() > 1u << 20) sizes.insert(sizes.end(), {{300001, 8}, {1000003, 1}});
  for (const Size& size : sizes) {
    check_drawing(size);
    check_keeping(size);
  }
}

}  // namespace penstock::kernels::cuda::check
