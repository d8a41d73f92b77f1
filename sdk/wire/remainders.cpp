#include <wire/remainders.hpp>

#include <kernels/on_code_path.hpp>

#include <cstring>

namespace penstock::wire {
namespace {

typedef uint32_t Lanes __attribute__((vector_size(64)));
constexpr unsigned kRows = kSlice / 16, kLaneBits = 32;

[[gnu::always_inline]] inline void pack_group(const uint32_t* numbers, unsigned width,
                                              unsigned char* packed) {
  Lanes word{};
  unsigned filled = 0;
  for (unsigned row = 0; row < kRows; ++row) {
    Lanes next;
    std::memcpy(&next, numbers + 16 * row, sizeof next);
    word |= next << filled;
    filled += width;
    if (filled < kLaneBits) continue;
    std::memcpy(packed, &word, sizeof word);
    packed += sizeof word;
    filled -= kLaneBits;
    word = next >> (width - filled);
  }
}

[[gnu::always_inline]] inline void unpack_group(const unsigned char* packed, unsigned width,
                                                uint32_t* numbers) {
  const uint32_t mask = (uint32_t{1} << width) - 1;
  Lanes word{};
  unsigned left = 0;  // bits of the word
  for (unsigned row = 0; row < kRows; ++row) {
    Lanes number = word;
    if (left < width) {
      std::memcpy(&word, packed, sizeof word);
      packed += sizeof word;
      number |= word << left;
      word >>= width - left;
      left += kLaneBits - width;
    } else {
      word >>= width;
      left -= width;
    }
    number &= mask;
    std::memcpy(numbers + 16 * row, &number, sizeof number);
  }
}

void pack_string(const uint32_t* numbers, uint64_t count, unsigned width, unsigned char* packed) {
  uint64_t word = 0;
  unsigned filled = 0;
  for (uint64_t i = 0; i < count; ++i) {
    word |= uint64_t{numbers[i]} << filled;
    for (filled += width; filled >= 8; filled -= 8, word >>= 8)
      *packed++ = static_cast<unsigned char>(word);
  }
  if (filled > 0) *packed = static_cast<unsigned char>(word);
}

void unpack_string(const unsigned char* packed, uint64_t count, unsigned width, uint32_t* numbers) {
  const uint64_t mask = (uint64_t{1} << width) - 1;
  uint64_t word = 0;
  unsigned filled = 0;
  for (uint64_t i = 0; i < count; ++i) {
    for (; filled < width; filled += 8) word |= uint64_t{*packed++} << filled;
    numbers[i] = static_cast<uint32_t>(word & mask);
    word >>= width;
    filled -= width;
  }
}

}  // namespace

void pack_remainders(const uint32_t* numbers, uint64_t count, unsigned width, unsigned char* packed,
                     kernels::CodePath path) noexcept {
  if (count < kSlice) return pack_string(numbers, count, width, packed);
  kernels::on_code_path(path, [=]() PENSTOCK_LOOP { pack_group(numbers, width, packed); });
}

void unpack_remainders(const unsigned char* packed, uint64_t count, unsigned width,
                       uint32_t* numbers, kernels::CodePath path) noexcept {
  if (count < kSlice) return unpack_string(packed, count, width, numbers);
  kernels::on_code_path(path, [=]() PENSTOCK_LOOP { unpack_group(packed, width, numbers); });
}

}  // namespace penstock::wire
