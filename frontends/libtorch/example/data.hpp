// The digits: 8 by 8 pixels and a label each, and which of them a rank sees in a step.
#ifndef PENSTOCK_LIBTORCH_EXAMPLE_DATA_HPP
#define PENSTOCK_LIBTORCH_EXAMPLE_DATA_HPP

#include <cstdint>
#include <string>
#include <vector>

namespace digits {

constexpr std::int64_t kPixels = 64;
constexpr std::int64_t kTrained = 1500;  // images of batches; the others are held out

struct Data {
  std::vector<float> pixels;         // [images][kPixels], 0 to 1
  std::vector<std::int64_t> labels;  // [images], 0 to 9

  std::int64_t images() const { return static_cast<std::int64_t>(labels.size()); }
};

// Reads what export_digits.py wrote: "DIGITS1\n", the number of images and of pixels as 32 bits
// each, all pixels as float32, a byte per label; little-endian. Throws std::runtime_error with what
// to do.
Data read_data(const std::string& path);

// Reads float32 numbers, `count` of them and nothing else.
std::vector<float> read_floats(const std::string& path, std::int64_t count);

// Writes them the same way.
void write_floats(const std::string& path, const std::vector<float>& numbers);

// The numbers of the images of `rank` in `step`: a function of its arguments alone, so that any
// program that knows it trains on the same.
std::vector<std::int64_t> batch(std::uint64_t seed, std::uint64_t step, std::uint64_t rank,
                                std::int64_t images);

}  // namespace digits

#endif  // PENSTOCK_LIBTORCH_EXAMPLE_DATA_HPP
