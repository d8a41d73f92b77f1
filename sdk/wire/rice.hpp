// Rice's code for the gaps between positions, a thousandth above the entropy of random positions at
// a density of 1 %.
//
// A gap is the number of elements between a position and the position before. Its lowest
// `parameter` bits are stored apart from its higher bits, so that neither end has to finish one gap
// before it begins the next: remainders with a fixed number of bits, and quotients in unary, each
// as so many zeros and a one. With parameter 0 there are no remainders, and the unary part is the
// bitmap of the positions up to the last position; so a bitmap is not a separate coding.
#pragma once

#include <wire/ones.hpp>
#include <wire/raw.hpp>

namespace penstock::wire {

// Body: remainders in groups of kSlice, then the last, smaller group, then the unary part; the
// bytes are in docs/payloads.md. The interface of Raw.
template <typename Position>
class Rice {
 public:
  static constexpr const char* kName = "rice";
  static constexpr int16_t kMostParameter = 31;
  // Finds the parameter with the fewest bits, by counting.
  static Fit fit(std::span<const Position> positions, uint64_t n, kernels::CodePath path) noexcept;
  static void write(std::span<const Position> positions, uint64_t n, int16_t parameter,
                    unsigned char* body, kernels::CodePath path) noexcept;

  std::string open(const Section& section, uint64_t n, kernels::CodePath path);
  std::string take(std::span<Position> slice);

 private:
  std::string take_group(std::span<Position> group);

  const unsigned char* remainders_ = nullptr;
  BitString quotients_;
  uint64_t n_ = 0;
  uint64_t count_ = 0;
  unsigned parameter_ = 0;
  uint64_t taken_ = 0;
  uint64_t sum_ = 0;  // of all remainders taken
  kernels::CodePath path_{};
};

}  // namespace penstock::wire
