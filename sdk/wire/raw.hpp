// Uncoded positions, in 32 bits, or in 64 bits if the number of elements needs them.
#pragma once

#include <kernels/code_path.hpp>
#include <wire/header.hpp>

namespace penstock::wire {

// The parameter and the body's bytes with which a coding would write given positions.
struct Fit {
  int16_t parameter = 0;
  uint64_t length = 0;
};

// The length of a coding that must not be chosen.
inline constexpr uint64_t kNever = ~uint64_t{0};

constexpr uint64_t raw_position_bytes(uint64_t n) noexcept {
  return n <= uint64_t{1} << 32 ? 4 : 8;
}

// The first place at which `slice` does not ascend; slice.size() if all positions ascend.
template <typename Position>
uint64_t first_fall(std::span<const Position> slice, kernels::CodePath path) noexcept;

// Each coding is a class with this interface: the static functions write, an object reads. A
// section must have at least one position when a function is called, and at most eight for each
// byte of its body.
template <typename Position>
class Raw {
 public:
  static constexpr const char* kName = "raw";
  static Fit fit(std::span<const Position> positions, uint64_t n, kernels::CodePath path) noexcept;
  static void write(std::span<const Position> positions, uint64_t n, int16_t parameter,
                    unsigned char* body, kernels::CodePath path) noexcept;

  std::string open(const Section& section, uint64_t n, kernels::CodePath path);
  std::string take(std::span<Position> slice);

 private:
  const unsigned char* next_ = nullptr;
  uint64_t n_ = 0;
  uint64_t lowest_ = 0;  // least value of the next position
  kernels::CodePath path_{};
};

}  // namespace penstock::wire
