// Standard normal numbers as a function of (seed, gradient, stream, element): no state, and equal
// bits on every rank, machine and code path.
#pragma once

#include <cstdint>

namespace penstock::kernels {

// One round of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014), modulo 2^64. [any]
constexpr uint64_t splitmix64(uint64_t z) noexcept {
  z += 0x9E3779B97F4A7C15u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

// Streams of one gradient. Streams from kStreamsPerStep on are for numbers that differ from step to
// step: see stream_of_step.
enum RandomStream : uint64_t {
  kStreamRightFactor = 1,
  kStreamLeftFactor = 2,
  kStreamSampling = 3,   // starts of samples
  kStreamRounding = 4,   // stochastic rounding of payloads
  kStreamSelection = 5,  // positions that are chosen at random
  kStreamHashing = 6     // hash functions
};
inline constexpr uint64_t kStreamsPerStep = 16;

// The stream that takes the place of `stream` in step `index`.
constexpr uint64_t stream_of_step(uint64_t stream, uint64_t index) noexcept {
  return stream + kStreamsPerStep * (index + 1);
}

// out[k] = element first + k of the stream:
//   base = splitmix64(seed ^ splitmix64(gradient * 0x9E3779B97F4A7C15 + stream))
//   bits = splitmix64(base + element * 0x9E3779B97F4A7C15)
//   u1, u2 = (upper 32 bits + 0.5) / 2^32, (lower 32 bits + 0.5) / 2^32
//   out = float(sqrt(-2 ln u1) cos(2 pi u2)), in double (Box and Muller, 1958)
// The logarithm and the cosine are our own, because the C library's functions differ between
// processors. [any]
void random_normal(uint64_t seed, uint64_t gradient, uint64_t stream, uint64_t first,
                   uint64_t count, float* out) noexcept;

}  // namespace penstock::kernels
