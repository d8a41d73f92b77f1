// 64-bit hash of bytes (XXH64 by Yann Collet), the same on every machine: for plugin files, plans
// and replicated state. It finds accidents, not forgeries.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace penstock {

// Hash of `size` bytes at `data`, which may be null when size is 0. Chain hashes by passing the
// last one as `seed`.
uint64_t hash64(const void* data, size_t size, uint64_t seed = 0);

inline uint64_t hash64(std::string_view text, uint64_t seed = 0) {
  return hash64(text.data(), text.size(), seed);
}

// Sixteen lower-case hexadecimal digits.
std::string hash_text(uint64_t hash);

}  // namespace penstock
