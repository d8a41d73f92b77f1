// Uniform random words as a function of (seed, gradient, stream, rank, element): no state, so the
// bits do not depend on the cut of the elements into calls, the machine or the code path.
//
// A key is made once per call from all arguments except the element. Element e then gets
//   k    = splitmix64(key + (e >> 32) * 0x9E3779B97F4A7C15)
//   x    = (e mod 2^32) + (k mod 2^32)             everything from here on modulo 2^32
//   x    = (x ^ (x >> 16)) * 0x7FEB352D
//   x    = x ^ (k >> 32)
//   x    = (x ^ (x >> 15)) * 0x846CA68B
//   word = x ^ (x >> 16)
// which is a counter put through a keyed permutation. Wellons ("Prospecting for Hash Functions",
// 2018) found these mixing steps to be the best of their kind; half of the key is used before and
// half between the steps. It takes two 32-bit products per element: a tenth of the work of Philox
// (Salmon et al., SC 2011), and no table as AES would need. It is not for cryptography.
//
// Three ways to get the words, fastest first:
//  - in a kernel: random_block once per 2^32 elements, then random_word on plain integers in a loop
//    that the compiler turns into vectors, or on a vector type of the compiler's;
//  - random_words for a range;
//  - random_uniform for numbers in (0, 1).
#pragma once

#include <kernels/code_path.hpp>
#include <kernels/random_normal.hpp>

#include <cstdint>

namespace penstock::kernels {

// The source of random numbers. `stream` is a RandomStream, or its stream_of_step for numbers that
// differ from step to step; `rank` is 0 if all ranks must draw equal numbers.
struct RandomSource {
  uint64_t seed;
  uint64_t gradient;
  uint64_t stream;
  uint64_t rank = 0;
};

struct RandomKey {
  uint64_t value;
};

// key = splitmix64(splitmix64(seed ^ splitmix64(gradient * G + stream)) + rank * G) with
// G = 0x9E3779B97F4A7C15. [any]
constexpr RandomKey random_key(const RandomSource& source) noexcept {
  constexpr uint64_t kGolden = 0x9E3779B97F4A7C15u;
  const uint64_t base =
      splitmix64(source.seed ^ splitmix64(source.gradient * kGolden + source.stream));
  return {splitmix64(base + source.rank * kGolden)};
}

// The two halves of k: equal for all elements with equal upper 32 bits.
struct RandomBlock {
  uint32_t first;
  uint32_t second;
};

// The block that contains `element`; within it, random_word takes the lower 32 bits of an element.
// [any]
constexpr RandomBlock random_block(RandomKey key, uint64_t element) noexcept {
  const uint64_t k = splitmix64(key.value + (element >> 32) * 0x9E3779B97F4A7C15u);
  return {static_cast<uint32_t>(k), static_cast<uint32_t>(k >> 32)};
}

// The words of elements of a block, given by their lower 32 bits. Words is uint32_t or a vector of
// uint32_t (such as __attribute__((vector_size(64)))). All 32 bits are good; if fewer are enough,
// take the upper bits. [any]
template <typename Words>
[[gnu::always_inline]] constexpr Words random_word(RandomBlock block, Words element) noexcept {
  Words x = element + block.first;
  x = (x ^ (x >> 16)) * 0x7FEB352Du;
  x = x ^ block.second;
  x = (x ^ (x >> 15)) * 0x846CA68Bu;
  return x ^ (x >> 16);
}

// A word as a number in (0, 1), equally spaced: (upper 23 bits + 0.5) / 2^23, exact in float. [any]
constexpr float unit_interval(uint32_t word) noexcept {
  return (static_cast<float>(word >> 9) + 0.5f) * 0x1p-23f;
}

// out[k] = word of element first + k. [any]
void random_words(RandomKey key, uint64_t first, uint64_t count, uint32_t* out,
                  CodePath path) noexcept;

// out[k] = unit_interval(word of element first + k). [any]
void random_uniform(RandomKey key, uint64_t first, uint64_t count, float* out,
                    CodePath path) noexcept;

}  // namespace penstock::kernels
