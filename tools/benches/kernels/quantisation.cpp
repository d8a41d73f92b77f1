// Signs and stochastic rounding, as the compressors call them.
#include <kernels/norm.hpp>
#include <kernels/sign.hpp>
#include <kernels/stochastic.hpp>

#include <vector>

namespace kernels = penstock::kernels;
#define PENSTOCK_DOOR __attribute__((visibility("default")))

static const kernels::CodePath kPath = kernels::widest_code_path();

extern "C" {

PENSTOCK_DOOR void bench_pack_signs(const float* x, uint64_t n, uint64_t* negative) {
  kernels::pack_signs(x, n, negative, nullptr, 0, kPath);
}

PENSTOCK_DOOR void bench_unpack_signs(const uint64_t* negative, uint64_t n, float scale,
                                      float* out) {
  const float values[2] = {scale, -scale};
  const kernels::ValuedSigns sender{{negative, nullptr, 0, nullptr}, values};
  kernels::sum_valued_signs(&sender, 1, n, n + 64, true, out, kPath);
}

// `planes` has the planes of all voters, one after the other.
PENSTOCK_DOOR void bench_vote(const uint64_t* planes, uint64_t voters, uint64_t n,
                              uint64_t* positive, uint64_t* negative) {
  std::vector<kernels::Signs> signs;
  for (uint64_t v = 0; v < voters; ++v)
    signs.push_back({planes + v * kernels::sign_words(n), nullptr, 0, nullptr});
  kernels::majority_planes(signs.data(), voters, n, positive, negative, kPath);
}

// EF-sign with its residual: add the gradient, sum magnitudes, pack, subtract.
PENSTOCK_DOOR float bench_ef_sign(const float* grad, float* work, uint64_t n, uint64_t* negative) {
  constexpr uint64_t kTile = 4096;
  double sum = 0;
  for (uint64_t at = 0; at < n; at += kTile) {
    const uint64_t some = n - at < kTile ? n - at : kTile;
    for (uint64_t i = at; i < at + some; ++i) work[i] += grad[i];
    sum += kernels::sum_of_magnitudes(work + at, some, kPath);
    kernels::pack_signs(work + at, some, negative + at / 64, nullptr, 0, kPath);
  }
  const auto scale = static_cast<float>(sum / static_cast<double>(n));
  kernels::take_out_by_sign(work, n, scale, -scale, kPath);
  return scale;
}

// One grid for all values, as after the norm is known.
PENSTOCK_DOOR void bench_levels(float* x, uint64_t n, float step, uint8_t* codes) {
  kernels::round_to_levels(x, n, {step, 127}, {1}, 0, false, codes, kPath);
}

PENSTOCK_DOOR void bench_ternary(float* x, uint64_t n, float scale, uint64_t* negative,
                                 uint64_t* nonzero) {
  kernels::round_to_signs(x, n, scale, {1}, 0, false, negative, nonzero, kPath);
}

// Includes norms of 512 elements.
PENSTOCK_DOOR void bench_qsgd(float* x, uint64_t n, float* steps, uint8_t* codes) {
  for (uint64_t at = 0; at < n; at += 512) {
    const uint64_t some = n - at < 512 ? n - at : 512;
    steps[at / 512] = kernels::grid_step(kernels::largest_magnitude(x + at, some, kPath), 127);
    kernels::round_to_levels(x + at, some, {steps[at / 512], 127}, {1}, at, false, codes + at,
                             kPath);
  }
}
}
