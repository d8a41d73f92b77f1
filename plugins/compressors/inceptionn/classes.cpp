// See classes.hpp.
#include "classes.hpp"

#include <kernels/on_code_path.hpp>

namespace penstock::inceptionn {
namespace {

using kernels::CodePath;

// Computes signs and magnitudes in steps, cut: both forms of every element, for every class. An
// element whose product rounded up to the next class stays in its class.
void fixed_points(const float* x, uint64_t numel, float halves_per_unit, float bytes_per_unit,
                  uint16_t* halves, uint8_t* bytes, CodePath path) {
  kernels::on_code_path(path, [=]() PENSTOCK_LOOP {
    for (uint64_t i = 0; i < numel; ++i) {
      const uint32_t sign = std::bit_cast<uint32_t>(x[i]) >> 31;
      const float magnitude = std::fabs(x[i]);
      const float half = magnitude * halves_per_unit, byte = magnitude * bytes_per_unit;
      const auto cut_half = static_cast<int32_t>(half < 32767.0f ? half : 32767.0f);
      const auto cut_byte = static_cast<int32_t>(byte < 127.0f ? byte : 127.0f);
      halves[i] = static_cast<uint16_t>(static_cast<uint32_t>(cut_half) | sign << 15);
      bytes[i] = static_cast<uint8_t>(static_cast<uint32_t>(cut_byte) | sign << 7);
    }
  });
}

// Computes the values of the codes of one element each, by their tags; the code of a float is the
// float.
void values(const uint32_t* codes, const uint8_t* tags, uint64_t numel, float half, float byte,
            float* x, CodePath path) {
  kernels::on_code_path(path, [=]() PENSTOCK_LOOP {
    for (uint64_t i = 0; i < numel; ++i) {
      const bool is_half = tags[i] == 2;
      const uint32_t sign_bit = is_half ? 15 : 7;
      const auto steps = static_cast<int32_t>(codes[i] & (is_half ? 0x7fffu : 0x7fu));
      const float magnitude = static_cast<float>(steps) * (is_half ? half : byte);
      const uint32_t sign = (codes[i] >> sign_bit & 1) << 31;
      const uint32_t fixed = std::bit_cast<uint32_t>(magnitude) | sign;
      x[i] = std::bit_cast<float>(tags[i] == 3 ? codes[i] : fixed);
    }
  });
}

}  // namespace

Counts count(const uint64_t* words, uint64_t numel) noexcept {
  constexpr uint64_t kLowBits = 0x5555555555555555u;
  uint64_t of_tag[4] = {};
  for (uint64_t w = 0; 32 * w < numel; ++w) {
    const uint64_t left = numel - 32 * w;
    const uint64_t low = left >= 32 ? kLowBits : kLowBits & ((uint64_t{1} << 2 * left) - 1);
    const uint64_t one = words[w] & low, two = words[w] >> 1 & low;
    of_tag[1] += static_cast<uint64_t>(std::popcount(one & ~two));
    of_tag[2] += static_cast<uint64_t>(std::popcount(two & ~one));
    of_tag[3] += static_cast<uint64_t>(std::popcount(one & two));
  }
  return {of_tag[3], of_tag[2], of_tag[1]};
}

void classify(const float* x, uint64_t numel, const Rule& rule, float unit, uint8_t* tags,
              CodePath path) noexcept {
  kernels::on_code_path(path, [=, bound = rule.bound * unit,
                               middle = rule.middle * unit]() PENSTOCK_LOOP {
    for (uint64_t i = 0; i < numel; ++i) {
      const float magnitude = std::fabs(x[i]);
      tags[i] =
          static_cast<uint8_t>((magnitude >= bound) + (magnitude >= middle) + (magnitude >= unit));
    }
  });
}

void Tile::encode(const float* x, const uint8_t* tags, uint64_t numel, const Rule& rule, float unit,
                  CodePath path) noexcept {
  uint16_t halves[kTile];
  uint8_t bytes[kTile];
  fixed_points(x, numel, Rule::kStepsOfHalf / unit, rule.steps_of_byte / unit, halves, bytes, path);
  counts_ = {};
  for (uint64_t i = 0; i < numel; ++i) {
    floats_[counts_.floats] = x[i];
    halves_[counts_.halves] = halves[i];
    bytes_[counts_.bytes_of_one] = bytes[i];
    counts_.floats += tags[i] == 3;
    counts_.halves += tags[i] == 2;
    counts_.bytes_of_one += tags[i] == 1;
  }
}

void Tile::decode(const uint8_t* tags, uint64_t numel, const Rule& rule, float unit, float* x,
                  CodePath path) noexcept {
  floats_[counts_.floats] = 0;  // read, though not used, once a class has ended
  halves_[counts_.halves] = 0;
  bytes_[counts_.bytes_of_one] = 0;
  uint32_t codes[kTile];
  Counts at;
  for (uint64_t i = 0; i < numel; ++i) {
    const uint32_t of_tag[4] = {0, bytes_[at.bytes_of_one], halves_[at.halves],
                                std::bit_cast<uint32_t>(floats_[at.floats])};
    codes[i] = of_tag[tags[i]];
    at.floats += tags[i] == 3;
    at.halves += tags[i] == 2;
    at.bytes_of_one += tags[i] == 1;
  }
  values(codes, tags, numel, unit / Rule::kStepsOfHalf, unit / rule.steps_of_byte, x, path);
}

void Tile::store(Streams<uint8_t>& to) const noexcept {
  const auto put = [](uint8_t*& at, const void* from, uint64_t bytes) {
    if (bytes != 0) std::memcpy(at, from, bytes);
    at += bytes;
  };
  put(to.floats, floats_, 4 * counts_.floats);
  put(to.halves, halves_, 2 * counts_.halves);
  put(to.bytes, bytes_, counts_.bytes_of_one);
}

void Tile::load(Streams<const uint8_t>& from, const Counts& counts) noexcept {
  counts_ = counts;
  const auto take = [](const uint8_t*& at, void* to, uint64_t bytes) {
    if (bytes != 0) std::memcpy(to, at, bytes);
    at += bytes;
  };
  take(from.floats, floats_, 4 * counts.floats);
  take(from.halves, halves_, 2 * counts.halves);
  take(from.bytes, bytes_, counts.bytes_of_one);
}

}  // namespace penstock::inceptionn
