// Packing in groups of eight codes (element/packing.hpp). No instruction set is asked for: at eight
// codes in a dozen plain operations, reading and writing memory is what costs.
#include <kernels/pack_bits.hpp>

#include <kernels/element/packing.hpp>

#include <bit>
#include <cstring>

namespace penstock::kernels {
namespace {

static_assert(std::endian::native == std::endian::little,
              "codes are gathered from bytes in the order of the wire, which is little-endian");

uint64_t load(const void* from, uint64_t bytes) {
  uint64_t word = 0;
  std::memcpy(&word, from, bytes);
  return word;
}

template <unsigned kBits>
void pack(const uint8_t* codes, uint64_t count, uint64_t* words) {
  for (; count >= 64; count -= 64, codes += 64, words += kBits)
    for (unsigned group = 0; group < 8; ++group) {
      const uint64_t narrowed = narrow<kBits>(load(codes + 8 * group, 8));
      std::memcpy(reinterpret_cast<unsigned char*>(words) + kBits * group, &narrowed, kBits);
    }
  if (count == 0) return;
  uint64_t last[kBits] = {};
  for (uint64_t group = 0; 8 * group < count; ++group) {
    const uint64_t left = count - 8 * group;
    const uint64_t narrowed = narrow<kBits>(load(codes + 8 * group, left < 8 ? left : 8));
    std::memcpy(reinterpret_cast<unsigned char*>(last) + kBits * group, &narrowed, kBits);
  }
  std::memcpy(words, last, packed_words(count, kBits) * sizeof(uint64_t));
}

template <unsigned kBits>
void unpack(const uint64_t* words, uint64_t count, uint8_t* codes) {
  for (; count >= 64; count -= 64, codes += 64, words += kBits)
    for (unsigned group = 0; group < 8; ++group) {
      const uint64_t widened =
          widen<kBits>(load(reinterpret_cast<const unsigned char*>(words) + kBits * group, kBits));
      std::memcpy(codes + 8 * group, &widened, 8);
    }
  if (count == 0) return;
  uint64_t last[kBits] = {};
  std::memcpy(last, words, packed_words(count, kBits) * sizeof(uint64_t));
  for (uint64_t group = 0; 8 * group < count; ++group) {
    const uint64_t left = count - 8 * group;
    const uint64_t widened =
        widen<kBits>(load(reinterpret_cast<const unsigned char*>(last) + kBits * group, kBits));
    std::memcpy(codes + 8 * group, &widened, left < 8 ? left : 8);
  }
}

using Pack = void (*)(const uint8_t*, uint64_t, uint64_t*);
using Unpack = void (*)(const uint64_t*, uint64_t, uint8_t*);
constexpr Pack kPack[] = {pack<1>, pack<2>, pack<3>, pack<4>, pack<5>, pack<6>, pack<7>, pack<8>};
constexpr Unpack kUnpack[] = {unpack<1>, unpack<2>, unpack<3>, unpack<4>,
                              unpack<5>, unpack<6>, unpack<7>, unpack<8>};

}  // namespace

void pack_bits(const uint8_t* codes, uint64_t count, unsigned bits, uint64_t* words) noexcept {
  kPack[bits - 1](codes, count, words);
}

void unpack_bits(const uint64_t* words, uint64_t count, unsigned bits, uint8_t* codes) noexcept {
  kUnpack[bits - 1](words, count, codes);
}

}  // namespace penstock::kernels
