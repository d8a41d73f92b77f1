// The dynamic tree: 256 numbers in [-1, 1], dense near zero, of nearly equal relative precision
// over seven decades.
// Source: Dettmers, "8-Bit Approximations for Parallelism in Deep Learning", ICLR 2016; with the
// boundaries of Dettmers, Lewis, Shleifer, Zettlemoyer, "8-bit Optimizers via Block-wise
// Quantization", ICLR 2022.
#pragma once

#include <kernels/code_path.hpp>

#include <array>
#include <cstdint>

namespace penstock::int8 {

// Values by code, ascending. Code 127 is 0, code 255 is 1. Decade d of 7, from 10^-7..10^-6 to
// 0.1..1, has the middles of 2^d equal cells; codes 0 to 126 are their negatives.
extern const std::array<float, 256> kCodebook;

// codes[i] = the code whose value is nearest to x[i] / scale, the smaller magnitude where two are
// equally near. scale > 0, no |x[i]| greater than it. [any]
void encode(const float* x, uint64_t count, float scale, uint8_t* codes,
            kernels::CodePath path) noexcept;

// out[i] += value of codes[i] * scale; x[i] -= value of codes[i] * scale. [any]
void add(const uint8_t* codes, uint64_t count, float scale, float* out,
         kernels::CodePath path) noexcept;
void subtract(const uint8_t* codes, uint64_t count, float scale, float* x,
              kernels::CodePath path) noexcept;

}  // namespace penstock::int8
