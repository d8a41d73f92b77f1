// Values in few bytes: float32, float16 or bfloat16 with a power of two for the section, or one
// sign each with two means.
//
//   bytes = write_values(kFloat16, values, target, path, seen);   // seen: what the receiver gets
//
//   ValuesReader reader(path);
//   std::string refused = reader.open(bytes);
//   while (refused.empty() && reader.left() > 0) refused = reader.take(slice);
//
// The power of two follows from the largest magnitude, so a section may have any scale: values
// times a power of two arrive as what they would have been, times it, as long as no float32 of them
// is subnormal. Sections with a value that is not finite travel as float32, in which it arrives as
// it is. Every code path writes and reads the same.
#pragma once

#include <kernels/code_path.hpp>
#include <wire/header.hpp>

namespace penstock::wire {

// Their numbers on the wire. kSign: the mean of all values that are not negative, and of those that
// are; a zero counts as not negative.
inline constexpr uint8_t kFloat32 = 0, kFloat16 = 1, kBfloat16 = 2, kSign = 3;
inline constexpr unsigned kValueCodings = 4;

// No section of `count` values is longer. [any]
constexpr uint64_t values_bound(uint64_t count) noexcept {
  return kMostHeaderBytes + 4 * count;
}

// Writes values in `coding`, or as float32 where that is not longer or some value is not finite.
// Returns the bytes of the section. `seen`, where it is not null, gets what the receiver will have;
// it may be the values themselves. What a memory keeps is their difference. [any]
uint64_t write_values(uint8_t coding, std::span<const float> values, unsigned char* target,
                      kernels::CodePath path, float* seen = nullptr) noexcept;

// Reads one section. The bytes are input: they are refused, by the end of a sentence that says why,
// or give values, which are finite unless they travel as float32. The bytes outlive the reader.
// [any], one thread at a time.
class ValuesReader {
 public:
  explicit ValuesReader(kernels::CodePath path) noexcept : path_(path) {}

  std::string open(std::span<const unsigned char> bytes);

  const Header& header() const noexcept { return section_.header; }
  uint64_t bytes() const noexcept { return section_.bytes; }
  uint64_t left() const noexcept { return left_; }

  // As PositionsReader::take.
  std::string take(std::span<float> slice);

 private:
  kernels::CodePath path_;
  Section section_;
  uint64_t left_ = 0;
};

// A whole section at once. [any]
std::string read_values(std::span<const unsigned char> bytes, std::span<float> room,
                        uint64_t& count, kernels::CodePath path);

}  // namespace penstock::wire
