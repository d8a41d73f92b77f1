// Values of the elements that a method chose of each block, in four types: float32, float16 with
// one unit for the gradient, codes of 2 bits for four numbers of the gradient, and codes of 2 bits
// for two magnitudes of each block.
//
// The values that are taken out of `work` are exactly the values that the receiver reads: `write`
// replaces each value by the number that its code stands for.
#pragma once

#include <kernels/convert.hpp>
#include <kernels/narrow_values.hpp>
#include <kernels/pack_bits.hpp>
#include <methods/blocks.hpp>
#include <penstock/need.hpp>
#include <penstock/options.hpp>

#include <bit>
#include <cmath>
#include <span>

namespace penstock::sdk {

// The payload of one rank during decode. Pointers point into it.
struct BlockSender {
  const uint32_t* positions;
  const void* values;     // numbers or codes
  const uint16_t* means;  // sign2: two float16 of each block
  const float* numbers;   // int2: four
  float unit;             // fp16, sign2
};

class BlockValues {
 public:
  static Option option(const char* value) {
    return choice_option("value_type", value, {"fp32", "fp16", "int2", "sign2"})
        .summary("form of the values on the wire; rounding errors stay in the memory");
  }
  explicit BlockValues(const Options& options) : type_(type_named(options.choice("value_type"))) {}

  bool is_exact() const { return type_ == Type::kFloat32; }

  // Adds the first sections of a round.
  void plan(Round& round, uint64_t entries, uint64_t blocks) const {
    switch (type_) {
      case Type::kFloat32:
        round.section(PENSTOCK_ROLE_VALUES, PENSTOCK_FLOAT32, entries);
        break;
      case Type::kFloat16:
        round.section(PENSTOCK_ROLE_VALUES, PENSTOCK_FLOAT16, entries)
            .section(PENSTOCK_ROLE_SCALES, PENSTOCK_FLOAT32, 1);
        break;
      case Type::kInt2:
        round.section(PENSTOCK_ROLE_BITS, PENSTOCK_UINT64, words(entries))
            .section(PENSTOCK_ROLE_VALUES, PENSTOCK_FLOAT32, 4);
        break;
      case Type::kSign2:
        round.section(PENSTOCK_ROLE_BITS, PENSTOCK_UINT64, words(entries))
            .section(PENSTOCK_ROLE_SCALES, PENSTOCK_FLOAT16, 2 * blocks)
            .section(PENSTOCK_ROLE_SCALES, PENSTOCK_FLOAT32, 1);
    }
  }

  // The section behind those of the values.
  uint64_t positions_at() const {
    return type_ == Type::kFloat32 ? 1 : type_ == Type::kSign2 ? 3 : 2;
  }

  // [step] Writes the sections for `values`, the chosen values of all blocks, of which a whole
  // block has `k`, and replaces each value by the number that the receiver reads.
  void write(PayloadWriter& payload, const Blocks& blocks, uint64_t k,
             std::span<float> values) const {
    switch (type_) {
      case Type::kFloat32:
        std::copy(values.begin(), values.end(), payload.room<float>(0).begin());
        break;
      case Type::kFloat16: {
        const float unit = unit_of(values);
        payload.room<float>(1)[0] = unit;
        kernels::narrow_values(kernels::ValueType::kFloat16, values.data(), values.size(),
                               payload.room<uint16_t>(0).data(), unit);
        payload.count(1, 1);
        break;
      }
      case Type::kInt2:
        write_four_numbers(payload, values);
        payload.count(1, 4);
        break;
      case Type::kSign2:
        write_magnitudes(payload, blocks, k, values);
        payload.count(1, 2 * blocks.count());
        payload.count(2, 1);
    }
    payload.count(0, is_coded() ? words(values.size()) : values.size());
  }

  // [step] Checks the counts and the scales of a payload: INVALID_PAYLOAD names what is wrong.
  BlockSender checked(const PayloadReader& payload, uint64_t entries, uint64_t blocks) const {
    BlockSender sender{};
    sender.positions = payload.section<uint32_t>(positions_at(), entries).data();
    switch (type_) {
      case Type::kFloat32:
        sender.values = payload.section<float>(0, entries).data();
        break;
      case Type::kFloat16:
        sender.values = payload.section<uint16_t>(0, entries).data();
        sender.unit = checked_unit(payload, 1);
        break;
      case Type::kInt2:
        sender.values = payload.section<uint64_t>(0, words(entries)).data();
        sender.numbers = payload.section<float>(1, 4).data();
        break;
      case Type::kSign2: {
        sender.values = payload.section<uint64_t>(0, words(entries)).data();
        const auto means = payload.section<uint16_t>(1, 2 * blocks);
        for (uint64_t m = 0; m < means.size(); ++m)
          if (means[m] > kLargestHalf)
            throw payload.error("has ", kernels::half_to_float(means[m]), " as magnitude ", m % 2,
                                " of block ", m / 2, ", expected a finite number of at least 0");
        sender.means = means.data();
        sender.unit = checked_unit(payload, 2);
      }
    }
    return sender;
  }

  // [step] The numbers of the `count` elements of block `block`, the first of which is number
  // `first` of the payload.
  void read(const BlockSender& sender, uint64_t block, uint64_t first, uint64_t count,
            float* target) const {
    if (type_ == Type::kFloat32)
      return void(std::copy_n(static_cast<const float*>(sender.values) + first, count, target));
    if (type_ == Type::kFloat16)
      return kernels::widen_values(kernels::ValueType::kFloat16,
                                   static_cast<const uint16_t*>(sender.values) + first, count,
                                   target, sender.unit);
    float numbers[4];
    if (type_ == Type::kInt2) {
      std::copy_n(sender.numbers, 4, numbers);
    } else {
      for (int high = 0; high < 2; ++high) {
        const float mean = kernels::half_to_float(sender.means[2 * block + high]) * sender.unit;
        numbers[2 * high] = mean;
        numbers[2 * high + 1] = -mean;
      }
    }
    const auto* const codes = static_cast<const uint64_t*>(sender.values);
    for (uint64_t i = 0; i < count; ++i) {
      const uint64_t at = first + i;
      target[i] = numbers[codes[at / 32] >> at % 32 * 2 & 3];
    }
  }

 private:
  enum class Type { kFloat32, kFloat16, kInt2, kSign2 };

  static constexpr uint16_t kLargestHalf = 0x7bff;
  // Units are powers of two. With the largest one, sums of many numbers stay finite.
  static constexpr int kLowestUnit = -126, kHighestUnit = 96;
  static constexpr uint64_t kTile = 1024;  // codes that are packed at a time, a multiple of 64

  static Type type_named(std::string_view name) {
    if (name == "fp16") return Type::kFloat16;
    if (name == "int2") return Type::kInt2;
    return name == "sign2" ? Type::kSign2 : Type::kFloat32;
  }
  static uint64_t words(uint64_t entries) { return kernels::packed_words(entries, 2); }
  bool is_coded() const { return type_ == Type::kInt2 || type_ == Type::kSign2; }

  // The power of two that brings the largest magnitude into [2^15, 2^16).
  static float unit_of(std::span<const float> values) {
    float lanes[8] = {};  // they do not wait for each other
    for (uint64_t i = 0; i < values.size(); ++i)
      lanes[i % 8] = std::max(lanes[i % 8], std::fabs(values[i]));
    const float largest = *std::max_element(lanes, lanes + 8);
    if (!(largest > 0)) return 1;
    const int exponent = std::isfinite(largest) ? std::ilogb(largest) - 15 : kHighestUnit;
    return std::ldexp(1.0f, std::clamp(exponent, kLowestUnit, kHighestUnit));
  }
  static float checked_unit(const PayloadReader& payload, uint64_t section) {
    const float unit = payload.section<float>(section, 1)[0];
    int exponent = 0;
    if (!(unit > 0) || std::frexp(unit, &exponent) != 0.5f || exponent <= kLowestUnit ||
        exponent > kHighestUnit + 1)
      throw payload.error("has a unit of ", unit, ", expected a power of two from 2^", kLowestUnit,
                          " to 2^", kHighestUnit);
    return unit;
  }
  // Writes code(i) for every value i.
  template <typename Code>
  static void write_codes(std::span<float> values, uint64_t* target, Code&& code) {
    uint8_t codes[kTile];
    for (uint64_t begin = 0; begin < values.size(); begin += kTile) {
      const uint64_t count = std::min(kTile, values.size() - begin);
      for (uint64_t i = 0; i < count; ++i) codes[i] = code(begin + i);
      kernels::pack_bits(codes, count, 2, target + words(begin));
    }
  }

  // SparseLoCo's quantiser over all m values v: s = mean v, c = v - s, deviation = |c| / sqrt(m -
  // 1), d = 6 deviation / 4, z = round(c / d + 2) within 0 to 3; code z stands for s + mean of c
  // with code z. With one value, or with equal values, d is 1 and every z is 2. The number of a
  // code that no value has is s.
  static void write_four_numbers(PayloadWriter& payload, std::span<float> values) {
    const auto m = static_cast<double>(values.size());
    double sum = 0;
    for (const float value : values) sum += value;
    const double mean = values.empty() ? 0 : sum / m;
    double squares = 0;
    for (const float value : values) squares += (value - mean) * (value - mean);
    double step = values.size() < 2 ? 0 : 6 * std::sqrt(squares / (m - 1)) / 4;
    if (!(step > 0) || !std::isfinite(step)) step = 1;
    // Without branches and without rint, which is a call; of a value that is not finite: 0.
    const auto code_of = [&](float value) {
      const double z = (value - mean) / step + 2;
      return static_cast<uint8_t>((z > 0.5) + (z >= 1.5) + (z > 2.5));
    };
    uint64_t* const codes = payload.room<uint64_t>(0).data();
    double centres[4] = {}, counts[4] = {};
    write_codes(values, codes, [&](uint64_t i) {
      const uint8_t code = code_of(values[i]);
      centres[code] += values[i] - mean;
      counts[code] += 1;
      return code;
    });
    float* const numbers = payload.room<float>(1).data();
    for (int z = 0; z < 4; ++z)
      numbers[z] = static_cast<float>(mean + (counts[z] == 0 ? 0 : centres[z] / counts[z]));
    for (uint64_t i = 0; i < values.size(); ++i)
      values[i] = numbers[codes[i / 32] >> i % 32 * 2 & 3];
  }

  // In every block, the magnitudes up to their mean become their own mean, and the others theirs.
  // Bit 0 of a code: below zero; bit 1: a magnitude above the mean.
  static void write_magnitudes(PayloadWriter& payload, const Blocks& blocks, uint64_t k,
                               std::span<float> values) {
    const float unit = unit_of(values);
    payload.room<float>(2)[0] = unit;
    uint16_t* const halves = payload.room<uint16_t>(1).data();
    uint64_t block = 0, ends = 0;  // the block of a value, and the number of its last value + 1
    double mean = 0;
    float magnitudes[2] = {};
    const auto begin_block = [&](uint64_t first) {
      const uint64_t count = blocks.kept(blocks[block].size(), k);
      ends = first + count;
      measure(values.subspan(first, count), mean, magnitudes);
      kernels::narrow_values(kernels::ValueType::kFloat16, magnitudes, 2, halves + 2 * block++,
                             unit);
    };
    write_codes(values, payload.room<uint64_t>(0).data(), [&](uint64_t i) {
      if (i == ends) begin_block(i);
      const bool high = std::fabs(values[i]) > mean, negative = values[i] < 0;
      values[i] = negative ? -magnitudes[high] : magnitudes[high];
      return static_cast<uint8_t>(high << 1 | negative);
    });
  }
  static void measure(std::span<const float> values, double& mean, float* magnitudes) {
    double sums[2] = {}, counts[2] = {};
    for (const float value : values) sums[0] += std::fabs(value);
    mean = sums[0] / static_cast<double>(values.size());
    sums[0] = 0;
    for (const float value : values) {
      const bool high = std::fabs(value) > mean;
      sums[high] += std::fabs(value);
      counts[high] += 1;
    }
    for (int high = 0; high < 2; ++high)
      magnitudes[high] = counts[high] == 0 ? 0 : static_cast<float>(sums[high] / counts[high]);
  }

  Type type_;
};

}  // namespace penstock::sdk
