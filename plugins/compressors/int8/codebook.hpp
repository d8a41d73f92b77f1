// Codes of the dynamic tree (kernels/dynamic_tree.hpp): 256 numbers in [-1, 1], dense near
// zero.
// Source: Dettmers, "8-Bit Approximations for Parallelism in Deep Learning", ICLR 2016; with the
// boundaries of Dettmers, Lewis, Shleifer, Zettlemoyer, "8-bit Optimizers via Block-wise
// Quantization", ICLR 2022.
#pragma once

#include <kernels/code_path.hpp>

#include <cstdint>

namespace penstock::int8 {

// codes[i] = the code whose value is nearest to x[i] / scale, or the code of the smaller magnitude
// if two values are equally near. scale > 0, and no |x[i]| is greater than scale. [any]
void encode(const float* x, uint64_t count, float scale, uint8_t* codes,
            kernels::CodePath path) noexcept;

// out[i] += value of codes[i] * scale; x[i] -= value of codes[i] * scale. [any]
void add(const uint8_t* codes, uint64_t count, float scale, float* out,
         kernels::CodePath path) noexcept;
void subtract(const uint8_t* codes, uint64_t count, float scale, float* x,
              kernels::CodePath path) noexcept;

}  // namespace penstock::int8
