// Values of entries that all ranks choose alike, so that the transport can sum them: float32, or
// rounded to 16 bits.
//
// Values have no scale, because the ranks would have to agree on it in a further round. Therefore
// there is no int8 here; also, a sum of bytes does not fit a byte.
#pragma once

#include <kernels/convert.hpp>
#include <methods/sparse_values.hpp>

namespace penstock::sdk {

class SummedValues {
 public:
  static constexpr uint64_t kTile = 1024;  // most values in one call of pack

  static Option option() {
    return choice_option("value_type", "fp32", {"fp32", "fp16", "bf16"})
        .summary(
            "type of the values on the wire; a value of 16 bits is at most the type's largest "
            "number divided by the number of ranks. The memory keeps the errors of this limit and "
            "of rounding; without a memory they are lost. Rounding errors of the sum are lost");
  }
  explicit SummedValues(const Options& options) {
    if (options.choice("value_type") == "fp16") type_ = kernels::ValueType::kFloat16;
    if (options.choice("value_type") == "bf16") type_ = kernels::ValueType::kBfloat16;
  }
  kernels::ValueType type() const { return type_; }
  bool narrow() const { return type_ != kernels::ValueType::kFloat32; }
  uint32_t dtype() const {
    if (type_ == kernels::ValueType::kFloat16) return PENSTOCK_FLOAT16;
    return type_ == kernels::ValueType::kBfloat16 ? PENSTOCK_BFLOAT16 : PENSTOCK_FLOAT32;
  }

  // Writes entries [first, first + count) of section 0 and replaces `values` by the rounded values
  // that were written. 16-bit values are limited to the largest number that each of `world` ranks
  // may send without an overflow of the sum.
  void pack(float* values, uint64_t count, const PayloadWriter& payload, uint64_t first,
            uint32_t world) const {
    char* const target = payload.room<char>(0).data() + first * dtype_bytes(dtype());
    if (narrow()) {
      const float limit = limit_among(world);
      for (uint64_t i = 0; i < count; ++i) values[i] = std::clamp(values[i], -limit, limit);
    }
    kernels::narrow_values(type_, values, count, target, 1);
  }

  // The part of an entry that stays: 0 if all of it was sent, infinity included.
  static float left_over(float before, float sent) { return before == sent ? 0 : before - sent; }

  // Section 0 of a sum. Throws INVALID_PAYLOAD unless it has `expected` entries of this type.
  class Sum {
   public:
    Sum(const SummedValues& values, const PayloadReader& payload, uint64_t expected)
        : type_(values.type_), bytes_(dtype_bytes(values.dtype())) {
      if (type_ == kernels::ValueType::kFloat32)
        data_ = reinterpret_cast<const char*>(payload.section<float>(0, expected).data());
      else
        data_ = reinterpret_cast<const char*>(payload.section<uint16_t>(0, expected).data());
    }
    const void* data() const { return data_; }
    void read(uint64_t first, uint64_t count, float* values) const {
      kernels::widen_values(type_, data_ + first * bytes_, count, values, 1);
    }

   private:
    kernels::ValueType type_;
    uint64_t bytes_;
    const char* data_;
  };

  // The largest magnitude that a rank may send in 16 bits.
  float limit_among(uint32_t world) const {
    return type_ == kernels::ValueType::kFloat16 ? kernels::half_share(world)
                                                 : kernels::bfloat16_share(world);
  }

 private:
  kernels::ValueType type_ = kernels::ValueType::kFloat32;
};

}  // namespace penstock::sdk
