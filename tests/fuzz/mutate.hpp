// Changes to bytes from a fixed seed, for all fuzz programs. There is no coverage feedback and no
// corpus on disk. The inputs come from the encoders.
#pragma once

#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <testing/data.hpp>

namespace penstock::test {

// Numbers at which decoders fail: limits of ranges, infinities and NaN.
inline uint32_t awkward_word(Random& random, uint64_t n) {
  const uint32_t words[] = {0,
                            1,
                            0x7f800000u,  // infinity
                            0xff800000u,
                            0x7fc00000u,  // NaN
                            0xffffffffu,
                            0x7f7fffffu,  // the largest float
                            0xff7fffffu,
                            0x80000000u,
                            0x7fffffffu,
                            static_cast<uint32_t>(n),
                            static_cast<uint32_t>(n - 1),
                            static_cast<uint32_t>(random.bits())};
  return words[random.below(std::size(words))];
}

// Changes some of `size` bytes in place: bits, an aligned word, a run, or all.
inline void mutate_bytes(unsigned char* bytes, uint64_t size, uint64_t n, Random& random) {
  if (size == 0) return;
  switch (random.below(4)) {
    case 0:
      for (uint64_t k = 1 + random.below(8); k > 0; --k)
        bytes[random.below(size)] ^= static_cast<unsigned char>(1u << random.below(8));
      return;
    case 1: {
      const uint32_t word = awkward_word(random, n);
      const uint64_t at = random.below((size + 3) / 4) * 4;
      std::memcpy(bytes + at, &word, std::min<uint64_t>(sizeof word, size - at));
      return;
    }
    case 2: {
      const uint64_t begin = random.below(size), end = begin + 1 + random.below(size - begin);
      const auto byte = static_cast<unsigned char>(random.bits());
      for (uint64_t i = begin; i < end; ++i) bytes[i] = byte;
      return;
    }
    default:
      for (uint64_t i = 0; i < size; ++i) bytes[i] = static_cast<unsigned char>(random.bits());
  }
}

// Returns a text or message with changed, removed or repeated parts, or cut off.
inline std::string mutated(std::string bytes, Random& random) {
  for (uint64_t k = 1 + random.below(3); k > 0 && !bytes.empty(); --k) {
    const uint64_t at = random.below(bytes.size());
    const uint64_t length = 1 + random.below(std::min<uint64_t>(16, bytes.size() - at));
    switch (random.below(4)) {
      case 0:
        mutate_bytes(reinterpret_cast<unsigned char*>(bytes.data()), bytes.size(), bytes.size(),
                     random);
        break;
      case 1:
        bytes.erase(at, length);
        break;
      case 2:
        bytes.insert(random.below(bytes.size()), bytes.substr(at, length));
        break;
      default:
        bytes.resize(at);
    }
  }
  return bytes;
}

}  // namespace penstock::test
