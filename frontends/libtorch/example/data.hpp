// What is trained on, as export.py writes it, and which of it a rank sees in a step.
#ifndef PENSTOCK_LIBTORCH_EXAMPLE_DATA_HPP
#define PENSTOCK_LIBTORCH_EXAMPLE_DATA_HPP

#include <cstdint>
#include <string>
#include <vector>

namespace example {

constexpr std::int64_t kPixels = 64;
constexpr std::int64_t kTrainedImages = 1500;  // images of batches; the others are held out
constexpr std::int64_t kContext = 64;          // characters that a window of text has

// scikit-learn's digits.
struct Digits {
  std::vector<float> pixels;         // [images][kPixels], 0 to 1
  std::vector<std::int64_t> labels;  // [images], 0 to 9

  std::int64_t images() const { return static_cast<std::int64_t>(labels.size()); }
};

// The King James Bible, a number below `vocabulary` for each character.
struct Text {
  std::int64_t vocabulary;
  std::vector<unsigned char> codes;

  // The last fiftieth is held out.
  std::int64_t trained() const {
    return static_cast<std::int64_t>(codes.size() - codes.size() / 50);
  }
};

// Read what export.py wrote: "DIGITS1\n", the number of images and of pixels as 32 bits
// each, all pixels as float32, a byte per label; or "TEXT1\n", the size of the vocabulary, the
// number of characters, a byte for each; little-endian. Throw std::runtime_error with what to do.
Digits read_digits(const std::string& path);
Text read_text(const std::string& path);

// Reads float32 numbers, `count` of them and nothing else.
std::vector<float> read_floats(const std::string& path, std::int64_t count);

// Writes them the same way.
void write_floats(const std::string& path, const std::vector<float>& numbers);

// `count` numbers below `below` for `rank` in `step`: a function of its arguments alone, so that
// any program that knows it trains on the same.
std::vector<std::int64_t> draw(std::uint64_t seed, std::uint64_t step, std::uint64_t rank,
                               std::int64_t count, std::uint64_t below);

}  // namespace example

#endif  // PENSTOCK_LIBTORCH_EXAMPLE_DATA_HPP
