// Reads the training data and chooses a rank's samples in a step.

#include "data.hpp"

#include <algorithm>
#include <cstring>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string_view>
#include <utility>

namespace example {
namespace {

constexpr std::string_view kDigits = "DIGITS1\n", kText = "TEXT1\n";

std::string read_file(const std::string& path, const std::string& remedy) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream bytes;
  if (file) bytes << file.rdbuf();
  if (!file) throw std::runtime_error(path + " cannot be read; " + remedy);
  return bytes.str();
}

// Mixes the bits of a 64-bit number (the finalizer of splitmix64).
std::uint64_t mix(std::uint64_t value) {
  value += 0x9e3779b97f4a7c15u;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9u;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebu;
  return value ^ (value >> 31);
}

// An exported file: a magic word, two numbers of 32 bits, and the items that they count;
// little-endian.
struct Exported {
  Exported(std::string file, const std::string& kind, std::string_view magic)
      : path(std::move(file)),
        remedy("write it with `python frontends/libtorch/example/export.py " + kind + " " + path +
               "`"),
        bytes(read_file(path, remedy)),
        begins(magic.size() + sizeof numbers) {
    if (bytes.size() < begins || !bytes.starts_with(magic))
      refuse("is not a file of " + kind + " (" + std::to_string(bytes.size()) + " bytes)");
    std::memcpy(numbers, bytes.data() + magic.size(), sizeof numbers);
  }
  std::string_view rest() const { return std::string_view(bytes).substr(begins); }
  [[noreturn]] void refuse(const std::string& what) const {
    throw std::runtime_error(path + " " + what + "; " + remedy);
  }

  const std::string path, remedy, bytes;
  const std::size_t begins;
  std::uint32_t numbers[2] = {0, 0};
};

}  // namespace

Digits read_digits(const std::string& path) {
  const Exported file(path, "digits", kDigits);
  const std::size_t images = file.numbers[0];
  const std::size_t pixel_bytes = images * kPixels * sizeof(float);
  if (file.numbers[1] != kPixels || images <= kTrainedImages ||
      file.rest().size() != pixel_bytes + images)
    file.refuse("is not a file of digits (" + std::to_string(file.bytes.size()) + " bytes)");
  Digits data;
  const char* next = file.rest().data();
  data.pixels.resize(images * kPixels);
  std::memcpy(data.pixels.data(), next, pixel_bytes);
  for (next += pixel_bytes; data.labels.size() < images; ++next) {
    const auto label = static_cast<unsigned char>(*next);
    if (label > 9) file.refuse("has the label " + std::to_string(label) + ", expected 0 to 9");
    data.labels.push_back(label);
  }
  return data;
}

Text read_text(const std::string& path) {
  const Exported file(path, "text", kText);
  Text text{file.numbers[0], {file.rest().begin(), file.rest().end()}};
  const bool is_whole = file.numbers[1] == text.codes.size() && text.codes.size() > 100 * kContext;
  const auto foreign = std::find_if(text.codes.begin(), text.codes.end(),
                                    [&](unsigned char code) { return code >= text.vocabulary; });
  if (!is_whole || foreign != text.codes.end())
    file.refuse("is not a file of text (" + std::to_string(file.bytes.size()) + " bytes)");
  return text;
}

std::vector<float> read_floats(const std::string& path, std::int64_t count) {
  const std::string bytes = read_file(path, "expected a file of float32 numbers");
  std::vector<float> numbers(static_cast<std::size_t>(count));
  if (bytes.size() != numbers.size() * sizeof(float))
    throw std::runtime_error(path + " has " + std::to_string(bytes.size()) + " bytes, expected " +
                             std::to_string(count) + " numbers of 4 bytes");
  std::memcpy(numbers.data(), bytes.data(), bytes.size());
  return numbers;
}

void write_floats(const std::string& path, const std::vector<float>& numbers) {
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(numbers.data()),
             static_cast<std::streamsize>(numbers.size() * sizeof(float)));
  file.close();
  if (!file) throw std::runtime_error(path + " cannot be written; is its folder there?");
}

std::vector<std::int64_t> draw(std::uint64_t seed, std::uint64_t step, std::uint64_t rank,
                               std::int64_t count, std::uint64_t below) {
  std::vector<std::int64_t> drawn;
  const std::uint64_t key = mix(mix(mix(seed) ^ step) ^ rank);
  for (std::int64_t i = 0; i < count; ++i)
    drawn.push_back(static_cast<std::int64_t>(mix(key ^ static_cast<std::uint64_t>(i)) % below));
  return drawn;
}

}  // namespace example
