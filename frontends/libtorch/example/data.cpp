// The digits: reading them, and which of them a rank sees in a step.

#include "data.hpp"

#include <cstring>
#include <fstream>
#include <sstream>
#include <stdexcept>

namespace digits {
namespace {

constexpr char kMagic[] = "DIGITS1\n";
constexpr std::size_t kMagicSize = sizeof kMagic - 1;

std::string read_file(const std::string& path, const std::string& remedy) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream bytes;
  if (file) bytes << file.rdbuf();
  if (!file) throw std::runtime_error(path + " cannot be read; " + remedy);
  return bytes.str();
}

// A well-mixed number of 64 bits (the finalizer of splitmix64).
std::uint64_t mix(std::uint64_t value) {
  value += 0x9e3779b97f4a7c15u;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9u;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebu;
  return value ^ (value >> 31);
}

}  // namespace

Data read_data(const std::string& path) {
  const std::string remedy =
      "write it with `python frontends/libtorch/example/export_digits.py " + path + "`";
  const std::string bytes = read_file(path, remedy);
  std::uint32_t shape[2] = {0, 0};
  if (bytes.size() >= kMagicSize + sizeof shape && bytes.starts_with(kMagic))
    std::memcpy(shape, bytes.data() + kMagicSize, sizeof shape);
  const std::size_t images = shape[0];
  const std::size_t pixel_bytes = images * kPixels * sizeof(float);
  if (shape[1] != kPixels || images <= kTrained ||
      bytes.size() != kMagicSize + sizeof shape + pixel_bytes + images)
    throw std::runtime_error(path + " is not a file of digits (" + std::to_string(bytes.size()) +
                             " bytes); " + remedy);
  Data data;
  const char* next = bytes.data() + kMagicSize + sizeof shape;
  data.pixels.resize(images * kPixels);
  std::memcpy(data.pixels.data(), next, pixel_bytes);
  for (next += pixel_bytes; data.labels.size() < images; ++next) {
    const auto label = static_cast<unsigned char>(*next);
    if (label > 9)
      throw std::runtime_error(path + " has the label " + std::to_string(label) +
                               ", expected 0 to 9; " + remedy);
    data.labels.push_back(label);
  }
  return data;
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

std::vector<std::int64_t> batch(std::uint64_t seed, std::uint64_t step, std::uint64_t rank,
                                std::int64_t images) {
  std::vector<std::int64_t> chosen;
  const std::uint64_t key = mix(mix(mix(seed) ^ step) ^ rank);
  for (std::int64_t i = 0; i < images; ++i)
    chosen.push_back(
        static_cast<std::int64_t>(mix(key ^ static_cast<std::uint64_t>(i)) % kTrained));
  return chosen;
}

}  // namespace digits
