// XXH64: four 64-bit lanes over 32-byte stripes, then the tail, then an avalanche.
#include "core/base/hash.hpp"

#include <fmt/format.h>

#include <bit>
#include <cstring>

namespace penstock {

namespace {
constexpr uint64_t kPrime1 = 0x9E3779B185EBCA87u;
constexpr uint64_t kPrime2 = 0xC2B2AE3D27D4EB4Fu;
constexpr uint64_t kPrime3 = 0x165667B19E3779F9u;
constexpr uint64_t kPrime4 = 0x85EBCA77C2B2AE63u;
constexpr uint64_t kPrime5 = 0x27D4EB2F165667C5u;

static_assert(std::endian::native == std::endian::little, "hashes are compared across ranks");

template <typename Word>
uint64_t load(const unsigned char* bytes) {
  Word word;
  std::memcpy(&word, bytes, sizeof word);
  return word;
}

uint64_t mix_lane(uint64_t lane, uint64_t word) {
  return std::rotl(lane + word * kPrime2, 31) * kPrime1;
}

uint64_t merge_lane(uint64_t hash, uint64_t lane) {
  return (hash ^ mix_lane(0, lane)) * kPrime1 + kPrime4;
}
}  // namespace

uint64_t hash64(const void* data, size_t size, uint64_t seed) {
  const auto* at = static_cast<const unsigned char*>(data);
  size_t left = size;
  uint64_t hash = seed + kPrime5;
  if (left >= 32) {
    uint64_t a = seed + kPrime1 + kPrime2, b = seed + kPrime2, c = seed, d = seed - kPrime1;
    for (; left >= 32; left -= 32, at += 32) {
      a = mix_lane(a, load<uint64_t>(at));
      b = mix_lane(b, load<uint64_t>(at + 8));
      c = mix_lane(c, load<uint64_t>(at + 16));
      d = mix_lane(d, load<uint64_t>(at + 24));
    }
    hash = std::rotl(a, 1) + std::rotl(b, 7) + std::rotl(c, 12) + std::rotl(d, 18);
    for (uint64_t lane : {a, b, c, d}) hash = merge_lane(hash, lane);
  }
  hash += size;
  for (; left >= 8; left -= 8, at += 8) {
    hash = std::rotl(hash ^ mix_lane(0, load<uint64_t>(at)), 27) * kPrime1 + kPrime4;
  }
  if (left >= 4) {
    hash = std::rotl(hash ^ load<uint32_t>(at) * kPrime1, 23) * kPrime2 + kPrime3;
    left -= 4, at += 4;
  }
  for (; left > 0; --left, ++at) hash = std::rotl(hash ^ *at * kPrime5, 11) * kPrime1;
  hash = (hash ^ hash >> 33) * kPrime2;
  hash = (hash ^ hash >> 29) * kPrime3;
  return hash ^ hash >> 32;
}

std::string hash_text(uint64_t hash) {
  return fmt::format("{:016x}", hash);
}

}  // namespace penstock
