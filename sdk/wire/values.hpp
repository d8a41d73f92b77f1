// Codes values in few bytes: float32, float16 or bfloat16 with a power of two for the section, or
// one sign each with two means.
//
//   bytes = write_values(kFloat16, values, target, path, seen);   // seen: the receiver's values
//
//   ValuesReader reader(path);
//   std::string refused = reader.open(bytes);
//   while (refused.empty() && reader.left() > 0) refused = reader.take(slice);
//
// The power of two follows from the largest magnitude, so a section may have any scale: if all
// values are multiplied by a power of two, the received values are multiplied by it too, as long as
// no float32 is subnormal. A section with a value that is not finite is sent as float32, so that
// the value arrives unchanged. Every code path writes and reads equal bytes.
#pragma once

#include <kernels/code_path.hpp>
#include <wire/header.hpp>

namespace penstock::wire {

// The numbers of the codings on the wire. kSign has two means: of all values that are not negative,
// and of all negative values; a zero counts as not negative.
inline constexpr uint8_t kFloat32 = 0, kFloat16 = 1, kBfloat16 = 2, kSign = 3;
inline constexpr unsigned kValueCodings = 4;

// The largest size of a section of `count` values, in bytes. [any]
constexpr uint64_t values_bound(uint64_t count) noexcept {
  return kMostHeaderBytes + 4 * count;
}

// Writes values in `coding`, or as float32 if that is not longer or some value is not finite.
// Returns the bytes of the section. `seen`, if not null, receives the values that the receiver will
// read; it may point to `values`. A memory keeps the difference of the two. [any]
uint64_t write_values(uint8_t coding, std::span<const float> values, unsigned char* target,
                      kernels::CodePath path, float* seen = nullptr) noexcept;

// Reads one section. The bytes are untrusted input: they are refused, and the returned text is the
// end of a sentence with the reason, or they give values, which are finite unless the coding is
// float32. The bytes must outlive the reader. [any], one thread at a time.
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

// Reads a whole section at once: `room` receives `count` values. [any]
std::string read_values(std::span<const unsigned char> bytes, std::span<float> room,
                        uint64_t& count, kernels::CodePath path);

}  // namespace penstock::wire
