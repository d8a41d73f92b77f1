// See values.hpp. Each coding is a row of a table: its length, its parameter, and the functions
// that write it and read it in slices of at most kSlice.
#include <wire/values.hpp>

#include <kernels/convert.hpp>
#include <kernels/finite.hpp>
#include <kernels/on_code_path.hpp>
#include <kernels/sign.hpp>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

namespace penstock::wire {
namespace {

using kernels::all_finite;
using kernels::CodePath;
using kernels::largest_magnitude;

int exponent_of(uint32_t bits) {
  const auto biased = static_cast<int>(bits >> 23);
  return biased > 0 ? biased - 127 : static_cast<int>(std::bit_width(bits)) - 150;
}

// 2^exponent as two factors, because it may lie outside float32. The smaller factor is applied
// first: its product is exact, so the result is rounded once.
struct PowerOfTwo {
  float first, second;
  explicit PowerOfTwo(int exponent) {
    const int most = std::clamp(exponent, -126, 127);
    first = std::ldexp(1.0f, exponent - most);
    second = std::ldexp(1.0f, most);
  }
};

// values[count] = from[count] * power, within limit.
void scale(const float* from, uint64_t count, PowerOfTwo power, float limit, float* values,
           CodePath path) {
  kernels::on_code_path(path, [=]() PENSTOCK_LOOP {
    for (uint64_t i = 0; i < count; ++i) {
      float value = from[i] * power.first * power.second;
      value = value > limit ? limit : value;
      values[i] = value < -limit ? -limit : value;
    }
  });
}

// ---- float32 ----

uint64_t float_bytes(uint64_t count) {
  return 4 * count;
}

void write_floats(const float* values, uint64_t count, int, unsigned char* body, CodePath) {
  std::memcpy(body, values, 4 * count);
}

std::string read_floats(const Section& section, uint64_t first, std::span<float> slice, CodePath) {
  std::memcpy(slice.data(), section.body.data() + 4 * first, slice.size_bytes());
  return {};
}

// ---- 16 bits and a power of two ----

// The code of the largest value has the exponent kExponent. This leaves room to round up, and most
// room for smaller values. kLargest is the largest code of that exponent.
struct Half {
  static constexpr int kExponent = 14;
  static constexpr float kLargest = 0x1.ffcp14f;
  static constexpr auto narrow = kernels::floats_to_halves;
  static constexpr auto widen = kernels::halves_to_floats;
};
struct Bfloat16 {
  static constexpr int kExponent = 0;
  static constexpr float kLargest = 0x1.fep0f;
  static constexpr auto narrow = kernels::floats_to_bfloat16s;
  static constexpr auto widen = kernels::bfloat16s_to_floats;
};

uint64_t narrow_bytes(uint64_t count) {
  return 2 * count;
}

// A value is its code times 2^parameter.
template <typename Type>
int narrow_parameter(uint32_t largest) {
  return largest == 0 ? 0 : exponent_of(largest) - Type::kExponent;
}

// Values that would be rounded beyond float32 get the largest code instead.
template <typename Type>
void write_narrow(const float* values, uint64_t count, int parameter, unsigned char* body,
                  CodePath path) {
  const bool at_end = parameter + Type::kExponent == 127;
  const float limit = at_end ? Type::kLargest : std::numeric_limits<float>::max();
  const PowerOfTwo power(-parameter);
  for (uint64_t first = 0; first < count; first += kSlice) {
    const uint64_t some = std::min(kSlice, count - first);
    float scaled[kSlice];
    uint16_t codes[kSlice];
    scale(values + first, some, power, limit, scaled, path);
    Type::narrow(scaled, codes, some);
    std::memcpy(body + 2 * first, codes, 2 * some);
  }
}

template <typename Type>
std::string read_narrow(const Section& section, uint64_t first, std::span<float> slice,
                        CodePath path) {
  const int parameter = section.header.parameter;
  if (parameter < -149 - Type::kExponent || parameter > 127 - Type::kExponent)
    return sentence("has values times 2^", parameter, ", which no float32 needs");
  const PowerOfTwo power(parameter);
  for (uint64_t at = 0; at < slice.size(); at += kSlice) {
    const uint64_t some = std::min<uint64_t>(kSlice, slice.size() - at);
    float* values = slice.data() + at;
    uint16_t codes[kSlice];
    std::memcpy(codes, section.body.data() + 2 * (first + at), 2 * some);
    Type::widen(codes, values, some);
    scale(values, some, power, std::numeric_limits<float>::infinity(), values, path);
    if (!all_finite(values, some, path)) return "has a value in 16 bits that is not finite";
  }
  return {};
}

// ---- signs ----

constexpr uint64_t kMeansBytes = 8;

uint64_t sign_bytes(uint64_t count) {
  return kMeansBytes + (count + 7) / 8;
}

void write_signs(const float* values, uint64_t count, int, unsigned char* body, CodePath path) {
  const kernels::SumsBySign sums = kernels::sums_by_sign(values, count, path);
  const auto mean = [](double sum, uint64_t of) {
    return of == 0 ? 0.0f : static_cast<float>(sum / static_cast<double>(of));
  };
  const float means[2] = {mean(sums.positive, count - sums.n_negative),
                          mean(sums.negative, sums.n_negative)};
  std::memcpy(body, means, kMeansBytes);
  body += kMeansBytes;
  for (uint64_t first = 0; first < count; first += kSlice, body += kSlice / 8) {
    const uint64_t some = std::min(kSlice, count - first);
    uint64_t negative[kSlice / 64];
    kernels::pack_signs(values + first, some, negative, nullptr, 0, path);
    if (some % 64 != 0) negative[some / 64] &= (uint64_t{1} << some % 64) - 1;
    std::memcpy(body, negative, (some + 7) / 8);
  }
}

std::string read_signs(const Section& section, uint64_t first, std::span<float> slice,
                       CodePath path) {
  float means[2];
  std::memcpy(means, section.body.data(), kMeansBytes);
  if (!std::isfinite(means[0]) || !std::isfinite(means[1]))
    return sentence("has the means ", means[0], " and ", means[1], ", expected finite ones");
  const unsigned char* bits = section.body.data() + kMeansBytes + first / 8;
  const auto positive = std::bit_cast<uint32_t>(means[0]);
  const uint32_t differs = positive ^ std::bit_cast<uint32_t>(means[1]);
  for (uint64_t at = 0; at < slice.size(); at += 64) {
    const uint64_t some = std::min<uint64_t>(64, slice.size() - at);
    uint64_t word = 0;
    std::memcpy(&word, bits + at / 8, (some + 7) / 8);
    float* values = slice.data() + at;
    const auto expand = [=](uint64_t count) PENSTOCK_LOOP {
      for (uint64_t i = 0; i < count; ++i)
        values[i] =
            std::bit_cast<float>(positive ^ (differs & (0 - static_cast<uint32_t>(word >> i & 1))));
    };
    if (some == 64)
      kernels::on_code_path(path, [=]() PENSTOCK_LOOP { expand(64); });
    else
      expand(some);
  }
  return {};
}

// ---- all ----

struct ValueCode {
  uint64_t (*length)(uint64_t count);
  int (*parameter)(uint32_t largest);
  void (*write)(const float* values, uint64_t count, int parameter, unsigned char* body,
                CodePath path);
  // The values from `first` on, a multiple of kSlice.
  std::string (*read)(const Section& section, uint64_t first, std::span<float> slice,
                      CodePath path);
};

int no_parameter(uint32_t) {
  return 0;
}

// In the order of their numbers.
constexpr ValueCode kCodes[kValueCodings] = {
    {float_bytes, no_parameter, write_floats, read_floats},
    {narrow_bytes, narrow_parameter<Half>, write_narrow<Half>, read_narrow<Half>},
    {narrow_bytes, narrow_parameter<Bfloat16>, write_narrow<Bfloat16>, read_narrow<Bfloat16>},
    {sign_bytes, no_parameter, write_signs, read_signs},
};

}  // namespace

uint64_t write_values(uint8_t coding, std::span<const float> values, unsigned char* target,
                      CodePath path, float* seen) noexcept {
  const uint64_t count = values.size();
  const uint32_t largest = largest_magnitude(values.data(), count, path);
  if (largest >= kernels::kInfinityBits || kCodes[coding].length(count) >= float_bytes(count))
    coding = kFloat32;
  const ValueCode& code = kCodes[coding];
  const Header header{coding, static_cast<int16_t>(code.parameter(largest)), count,
                      code.length(count) * (count > 0)};
  unsigned char* body = write_header(header, target);
  if (count > 0) code.write(values.data(), count, header.parameter, body, path);
  if (seen != nullptr && count > 0) {
    const Section section{header, {body, header.length}, header_bytes(header) + header.length};
    code.read(section, 0, {seen, count}, path);
  }
  return header_bytes(header) + header.length;
}

std::string ValuesReader::open(std::span<const unsigned char> bytes) {
  std::string refused = read_section(bytes, section_);
  if (!refused.empty()) return refused;
  const Header& header = section_.header;
  if (header.coding >= kValueCodings)
    return sentence("is of the unknown coding ", unsigned{header.coding}, ", expected one below ",
                    kValueCodings);
  // No coding can hold so many values, and their length might not fit 64 bits.
  const bool too_many = header.count > 8 * header.length;
  if (too_many ||
      header.length != (header.count > 0 ? kCodes[header.coding].length(header.count) : 0))
    return sentence("has ", header.length, " bytes for ", header.count, " values of coding ",
                    unsigned{header.coding});
  if (header.parameter != 0 &&
      (header.count == 0 || kCodes[header.coding].parameter == no_parameter))
    return sentence("has the parameter ", header.parameter, ", expected 0");
  left_ = header.count;
  return {};
}

std::string ValuesReader::take(std::span<float> slice) {
  if (slice.empty()) return {};
  const uint64_t first = section_.header.count - left_;
  left_ -= slice.size();
  return kCodes[section_.header.coding].read(section_, first, slice, path_);
}

std::string read_values(std::span<const unsigned char> bytes, std::span<float> room,
                        uint64_t& count, CodePath path) {
  ValuesReader reader(path);
  std::string refused = reader.open(bytes);
  if (!refused.empty()) return refused;
  count = reader.left();
  if (count > room.size())
    return sentence("has ", count, " values, at most ", room.size(), " are legal");
  return reader.take(room.first(count));
}

}  // namespace penstock::wire
