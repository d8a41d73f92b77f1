// 64-bit hash of bytes (XXH64 by Yann Collet), equal on every machine: for plugin files, plans and
// replicated state. It detects accidental changes, not forgeries.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace penstock {

// Hash of `size` bytes at `data`, which may be null if size is 0. To chain hashes, pass the
// previous hash as `seed`.
uint64_t hash64(const void* data, size_t size, uint64_t seed = 0);

inline uint64_t hash64(std::string_view text, uint64_t seed = 0) {
  return hash64(text.data(), text.size(), seed);
}

// Sixteen lower-case hexadecimal digits.
std::string hash_text(uint64_t hash);

}  // namespace penstock
