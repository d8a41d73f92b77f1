// The training data, as export.py writes it, and the choice of a rank's samples in a step.
#ifndef PENSTOCK_LIBTORCH_EXAMPLE_DATA_HPP
#define PENSTOCK_LIBTORCH_EXAMPLE_DATA_HPP

#include <cstdint>
#include <string>
#include <vector>

namespace example {

constexpr std::int64_t kPixels = 64;
constexpr std::int64_t kTrainedImages = 1500;  // images of batches; the others are held out
constexpr std::int64_t kContext = 64;          // characters in a window of text

// scikit-learn's digits.
struct Digits {
  std::vector<float> pixels;         // [images][kPixels], 0 to 1
  std::vector<std::int64_t> labels;  // [images], 0 to 9

  std::int64_t images() const { return static_cast<std::int64_t>(labels.size()); }
};

// The text of the King James Bible: for each character a number below `vocabulary`.
struct Text {
  std::int64_t vocabulary;
  std::vector<unsigned char> codes;

  // The number of characters for training; the last fiftieth of the text is held out.
  std::int64_t trained() const {
    return static_cast<std::int64_t>(codes.size() - codes.size() / 50);
  }
};

// Read a file that export.py wrote, little-endian: "DIGITS1\n", the number of images and the number
// of pixels as 32 bits each, all pixels as float32, a byte per label; or "TEXT1\n", the size of the
// vocabulary, the number of characters, a byte per character. Throw std::runtime_error, whose
// message states the remedy.
Digits read_digits(const std::string& path);
Text read_text(const std::string& path);

// Reads a file of exactly `count` float32 numbers.
std::vector<float> read_floats(const std::string& path, std::int64_t count);

// Writes a file that read_floats() can read.
void write_floats(const std::string& path, const std::vector<float>& numbers);

// Returns `count` numbers below `below` for `rank` in `step`. The numbers depend only on the
// arguments, so every program that uses this function trains on equal samples.
std::vector<std::int64_t> draw(std::uint64_t seed, std::uint64_t step, std::uint64_t rank,
                               std::int64_t count, std::uint64_t below);

}  // namespace example

#endif  // PENSTOCK_LIBTORCH_EXAMPLE_DATA_HPP
