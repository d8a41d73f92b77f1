// See norm.hpp. One body is compiled for several instruction sets. The source fixes the order of
// additions, and contraction is off, so only the width of the registers differs.
#include <kernels/norm.hpp>

#include <cmath>

namespace penstock::kernels {
namespace {

constexpr uint64_t kLanes = 16;

template <typename Term>
[[gnu::always_inline]] inline double sum_in_lanes(const float* x, uint64_t n, Term term) {
  double lanes[kLanes] = {};
  uint64_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    for (uint64_t lane = 0; lane < kLanes; ++lane) lanes[lane] += term(x[i + lane]);
  for (uint64_t lane = 0; i < n; ++i, ++lane) lanes[lane] += term(x[i]);
  for (uint64_t width = kLanes / 2; width > 0; width /= 2)
    for (uint64_t lane = 0; lane < width; ++lane) lanes[lane] += lanes[lane + width];
  return lanes[0];
}

struct Square {
  [[gnu::always_inline]] double operator()(float value) const { return double{value} * value; }
};
struct Magnitude {
  [[gnu::always_inline]] double operator()(float value) const { return std::fabs(double{value}); }
};

template <typename Term>
double sum_portable(const float* x, uint64_t n) {
  return sum_in_lanes(x, n, Term{});
}

#if defined(__x86_64__)
template <typename Term>
__attribute__((target("avx2"))) double sum_avx2(const float* x, uint64_t n) {
  return sum_in_lanes(x, n, Term{});
}
template <typename Term>
__attribute__((target("avx512f"))) double sum_avx512(const float* x, uint64_t n) {
  return sum_in_lanes(x, n, Term{});
}
#endif

template <typename Term>
double sum_on(const float* x, uint64_t n, CodePath path) {
#if defined(__x86_64__)
  if (path == CodePath::kAvx2) return sum_avx2<Term>(x, n);
  if (path == CodePath::kAvx512) return sum_avx512<Term>(x, n);
#endif
  (void)path;
  return sum_portable<Term>(x, n);
}

}  // namespace

double sum_of_squares(const float* x, uint64_t n, CodePath path) noexcept {
  return sum_on<Square>(x, n, path);
}

double sum_of_magnitudes(const float* x, uint64_t n, CodePath path) noexcept {
  return sum_on<Magnitude>(x, n, path);
}

}  // namespace penstock::kernels
