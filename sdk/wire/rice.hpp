// Rice's code for the gaps between positions, a thousandth above the entropy of random positions at
// a density of 1 %.
//
// A gap is what lies between a position and the one before, exclusive. Its lowest `parameter` bits
// travel apart from the rest, so that neither end waits for one gap before it can begin with the
// next: remainders with a fixed number of bits, and quotients in unary, each as so many zeros and a
// one. With parameter 0 there are no remainders, and the unary part is the bitmap of the positions,
// as far as the last of them; so a bitmap is no coding of its own.
#pragma once

#include <wire/ones.hpp>
#include <wire/raw.hpp>

namespace penstock::wire {

// Body: remainders in groups of kSlice, then what is left of them, then the unary part; the bytes
// are in docs/payloads.md. The form of Raw.
template <typename Position>
class Rice {
 public:
  static constexpr const char* kName = "rice";
  static constexpr int16_t kMostParameter = 31;
  // The parameter with the fewest bits, by counting.
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
