// Values on a device: conversion, scatter and gather, packing, random numbers. They are the
// counterparts of convert.hpp, narrow_values.hpp, scatter.hpp, pack_bits.hpp, random_uniform.hpp
// and random_normal.hpp, with equal bits. Contract: workspace.hpp.
#pragma once

#include <kernels/cuda/workspace.hpp>
#include <kernels/fold.hpp>
#include <kernels/random_uniform.hpp>

#include <cstdint>
#include <span>

namespace penstock::kernels {
enum class ValueType;
}

namespace penstock::kernels::cuda {

// ---- 16-bit floats ----

// source[count] -> target[count], as in ../convert.hpp; the ranges must not overlap.
[[nodiscard]] int32_t floats_to_halves(const float* source, uint16_t* target, uint64_t count,
                                       void* stream) noexcept;
[[nodiscard]] int32_t halves_to_floats(const uint16_t* source, float* target, uint64_t count,
                                       void* stream) noexcept;
[[nodiscard]] int32_t floats_to_bfloat16s(const float* source, uint16_t* target, uint64_t count,
                                          void* stream) noexcept;
[[nodiscard]] int32_t bfloat16s_to_floats(const uint16_t* source, float* target, uint64_t count,
                                          void* stream) noexcept;

// Encode and decode of a cast whose payloads are summed on the way, for types of 16 bits; other
// types are refused. A call takes any number of arrays; a launch narrows 47 arrays or widens 111.
//
// target[i] = work[i], rounded as in ../convert.hpp. If `keeps`, work is first compensated unless
// the fold's form is NONE; then values are limited to magnitudes of at most `limit`, and work[i]
// loses the value of target[i]. work must be finite; its rest is finite too.
struct NarrowRequest {
  Fold fold;  // gives work; a form other than NONE requires `keeps`
  uint16_t* target;
  uint64_t count;
  bool keeps;
};
[[nodiscard]] int32_t take_narrow(ValueType type, std::span<const NarrowRequest> requests,
                                  float limit, void* stream) noexcept;
// target[i] = source[i] * scale; for a scale of 1 there is no multiplication.
struct WidenRequest {
  const uint16_t* source;
  float* target;
  uint64_t count;
};
[[nodiscard]] int32_t widen_scaled(ValueType type, std::span<const WidenRequest> requests,
                                   float scale, void* stream) noexcept;

// ---- Values of sparse payloads ----

// Like widen_values of ../narrow_values.hpp. `scale` is device memory, read for types with a scale
// only. sparse_values.hpp narrows.
[[nodiscard]] int32_t widen_values(ValueType type, const void* source, uint64_t count,
                                   float* values, const float* scale, void* stream) noexcept;

// ---- Single entries ----
//
// These functions work as in ../scatter.hpp, for `n` of at most 2^32: every index is checked before
// anything is changed. *good, in device memory, receives the number of entries before the first
// index that is out of range. If all indices are good, it is `count`; otherwise nothing was
// changed.

// out[indices[j]] += values[j]; an index that occurs twice adds twice, in the order of j. Ascending
// indices are added in parallel; other indices, which no compressor here sends, are added by one
// warp in their order. Calls on one stream add one after the other, so calls in rank order add in
// rank order.
[[nodiscard]] int32_t scatter_add(const uint32_t* indices, const float* values, uint64_t count,
                                  float* out, uint64_t n, uint64_t* good, Workspace workspace,
                                  void* stream) noexcept;
inline constexpr uint64_t kScatterWorkspaceBytes = 64;

// work[indices[j]] = 0.
[[nodiscard]] int32_t zero_at(const uint32_t* indices, uint64_t count, float* work, uint64_t n,
                              uint64_t* good, void* stream) noexcept;

// values[j] = x[indices[j]].
[[nodiscard]] int32_t gather(const float* x, uint64_t n, const uint32_t* indices, uint64_t count,
                             float* values, uint64_t* good, void* stream) noexcept;

// ---- Codes of 1 to 8 bits ----

// Like pack_bits and unpack_bits of ../pack_bits.hpp. Codes and words must be aligned to 8 bytes.
[[nodiscard]] int32_t pack_bits(const uint8_t* codes, uint64_t count, unsigned bits,
                                uint64_t* words, void* stream) noexcept;
[[nodiscard]] int32_t unpack_bits(const uint64_t* words, uint64_t count, unsigned bits,
                                  uint8_t* codes, void* stream) noexcept;

// ---- Random numbers ----

// Like random_words, random_uniform (at most 2^32 per call) and random_normal of
// ../random_uniform.hpp and ../random_normal.hpp.
[[nodiscard]] int32_t random_words(RandomKey key, uint64_t first, uint64_t count, uint32_t* out,
                                   void* stream) noexcept;
[[nodiscard]] int32_t random_uniform(RandomKey key, uint64_t first, uint64_t count, float* out,
                                     void* stream) noexcept;
[[nodiscard]] int32_t random_normal(uint64_t seed, uint64_t gradient, uint64_t stream_of_numbers,
                                    uint64_t first, uint64_t count, float* out,
                                    void* stream) noexcept;

}  // namespace penstock::kernels::cuda
