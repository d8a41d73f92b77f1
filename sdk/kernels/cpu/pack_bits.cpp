// Packs groups of eight codes (element/packing.hpp), with a dozen plain operations per group. Codes
// of four bits, which most methods use, are packed in registers of 16 bytes, which every processor
// has.
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

typedef uint8_t Bytes __attribute__((vector_size(16)));
typedef uint16_t Pairs __attribute__((vector_size(16)));

template <typename Vector>
Vector load_vector(const void* from) {
  Vector value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

// 64 codes of a byte <-> 32 bytes of two codes, the first in the low half.
void pack_fours(const uint8_t* codes, uint64_t* words) {
  for (unsigned part = 0; part < 2; ++part) {
    const auto joined = [&](unsigned half) {
      const Pairs pairs = load_vector<Pairs>(codes + 32 * part + 16 * half);
      return (Bytes)((pairs & 0x0F) | ((pairs >> 4) & 0xF0));
    };
    const Bytes packed = __builtin_shuffle(
        joined(0), joined(1), Bytes{0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30});
    std::memcpy(words + 2 * part, &packed, sizeof packed);
  }
}
void unpack_fours(const uint64_t* words, uint8_t* codes) {
  for (unsigned part = 0; part < 2; ++part) {
    const Bytes packed = load_vector<Bytes>(words + 2 * part);
    const Bytes low = packed & 0x0F, high = packed >> 4;
    const Bytes first =
        __builtin_shuffle(low, high, Bytes{0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23});
    const Bytes second = __builtin_shuffle(
        low, high, Bytes{8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31});
    std::memcpy(codes + 32 * part, &first, sizeof first);
    std::memcpy(codes + 32 * part + 16, &second, sizeof second);
  }
}

template <unsigned kBits>
void pack(const uint8_t* codes, uint64_t count, uint64_t* words) {
  for (; count >= 64; count -= 64, codes += 64, words += kBits) {
    if constexpr (kBits == 4) {
      pack_fours(codes, words);
      continue;
    }
    for (unsigned group = 0; group < 8; ++group) {
      const uint64_t narrowed = narrow<kBits>(load(codes + 8 * group, 8));
      std::memcpy(reinterpret_cast<unsigned char*>(words) + kBits * group, &narrowed, kBits);
    }
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
  for (; count >= 64; count -= 64, codes += 64, words += kBits) {
    if constexpr (kBits == 4) {
      unpack_fours(words, codes);
      continue;
    }
    for (unsigned group = 0; group < 8; ++group) {
      const uint64_t widened =
          widen<kBits>(load(reinterpret_cast<const unsigned char*>(words) + kBits * group, kBits));
      std::memcpy(codes + 8 * group, &widened, 8);
    }
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
