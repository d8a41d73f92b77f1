// Values of sparse payloads in four types: float32, float16, bfloat16, and int8 with one scale.
//
// The values that are taken out of `work` are exactly the values that the receiver will add. The
// rounding error, and the part that a narrow type cannot hold, stay in `work`, so no mass is lost.
// SparseCompressor (sparse.hpp) plans a round, writes the payload whose indices were chosen, and
// adds the payloads in decode.
#pragma once

#include <kernels/narrow_values.hpp>
#include <kernels/scatter.hpp>
#include <methods/agreed.hpp>
#include <penstock/compressor.hpp>
#include <penstock/options.hpp>

#include <algorithm>
#include <cmath>
#include <functional>

namespace penstock::sdk {

class SparseValues {
 public:
  static Option option() {
    return choice_option("value_type", "fp32", {"fp32", "fp16", "bf16", "int8"})
        .summary("type of the values on the wire; rounding errors stay in the memory");
  }
  explicit SparseValues(const Options& options)
      : SparseValues(type_named(options.choice("value_type"))) {}
  explicit SparseValues(kernels::ValueType type) : type_(type) {}

  kernels::ValueType type() const { return type_; }
  uint32_t dtype() const {
    if (type_ == kernels::ValueType::kFloat16) return PENSTOCK_FLOAT16;
    if (type_ == kernels::ValueType::kBfloat16) return PENSTOCK_BFLOAT16;
    return type_ == kernels::ValueType::kInt8 ? PENSTOCK_INT8 : PENSTOCK_FLOAT32;
  }

  // Plans a gathered round with room for `capacity` entries: section 0 has indices, section 1
  // values, and for int8 section 2 one scale. `exact`: there are always `capacity` entries.
  Round& plan(CompressorNeed& need, uint64_t capacity, bool exact) const {
    Round& round = need.round(PENSTOCK_COMBINE_GATHER);
    round.section(PENSTOCK_ROLE_INDICES, PENSTOCK_UINT32, capacity, exact, PENSTOCK_SPLIT_BY_INDEX)
        .section(PENSTOCK_ROLE_VALUES, dtype(), capacity, exact, PENSTOCK_SPLIT_BY_INDEX);
    if (type_ == kernels::ValueType::kInt8)
      round.section(PENSTOCK_ROLE_SCALES, PENSTOCK_FLOAT32, 1, true, PENSTOCK_SPLIT_COPY);
    return round;
  }

  // Completes the payload whose first `count` indices are written: writes the values of work at
  // these indices, and if the item keeps, takes the sent values out of work.
  void write(const Item& item, PayloadWriter& payload, uint64_t count) const {
    const std::span<float> work = item.work();
    const uint32_t* indices = payload.room<uint32_t>(0).data();
    payload.sparse(count);
    float scale = 0;
    if (type_ == kernels::ValueType::kInt8) {
      float largest = 0;
      for (uint64_t j = 0; j < count; ++j) largest = std::max(largest, std::fabs(work[indices[j]]));
      payload.room<float>(2)[0] = scale = kernels::int8_scale(largest);
      payload.count(2, 1);
    }
    auto* target = payload.room<char>(1).data();
    float exact[kChunk], rounded[kChunk];
    for (uint64_t begin = 0; begin < count; begin += kChunk) {
      const uint64_t size = std::min(kChunk, count - begin);
      for (uint64_t j = 0; j < size; ++j) exact[j] = rounded[j] = work[indices[begin + j]];
      kernels::narrow_values(type_, rounded, size, target + begin * dtype_bytes(dtype()), scale);
      if (!item.keeps()) continue;
      if (type_ == kernels::ValueType::kFloat32) {
        for (uint64_t j = 0; j < size; ++j) work[indices[begin + j]] = 0;
      } else {
        for (uint64_t j = 0; j < size; ++j) work[indices[begin + j]] = exact[j] - rounded[j];
      }
    }
  }

  // The part of a payload that is not added yet.
  struct Sender {
    const uint32_t* next;
    const uint32_t* end;
    const char* values;  // of `next`
    float scale;
  };
  static uint64_t sender_bytes(uint32_t world) { return whole_lines(world * sizeof(Sender)); }

  // A payload to be added to `n` elements. Throws INVALID_PAYLOAD for a kind, count, type, scale or
  // index that does not fit, and for an index below the index before.
  Sender checked(const Call& call, const PayloadReader& payload, uint64_t n) const {
    if (payload.kind() != PENSTOCK_PAYLOAD_SPARSE)
      throw payload.error("is of kind ", payload.kind(), ", expected sparse");
    const std::span<const uint32_t> indices = payload.section<uint32_t>(0);
    const char* values = bytes_of(payload, indices.size());
    const float scale = checked_scale(call, payload);
    const uint64_t good = kernels::indices_in_range(indices.data(), indices.size(), n);
    if (good != indices.size())
      throw payload.error("has index ", indices[good], " at entry ", good, ", expected one below ",
                          n);
    const auto fall = std::adjacent_find(indices.begin(), indices.end(), std::greater<>());
    if (fall != indices.end())
      throw payload.error("has index ", fall[1], " behind ", fall[0],
                          ", expected indices to ascend");
    return {indices.data(), indices.data() + indices.size(), values, scale};
  }

  // Adds the entries of `sender` in [first, first + tile.size()) to `tile`, the sum so far.
  void add(Sender& sender, uint64_t first, std::span<float> tile) const {
    float values[kChunk];
    while (sender.next != sender.end && *sender.next - first < tile.size()) {
      uint64_t size = 0;
      const uint64_t most = std::min<uint64_t>(kChunk, sender.end - sender.next);
      while (size < most && sender.next[size] - first < tile.size()) ++size;
      kernels::widen_values(type_, sender.values, size, values, sender.scale);
      for (uint64_t j = 0; j < size; ++j) tile[sender.next[j] - first] += values[j];
      sender.next += size;
      sender.values += size * dtype_bytes(dtype());
    }
  }

  // The values of a payload in the type in which they were sent; there must be `count` values.
  const char* bytes_of(const PayloadReader& payload, uint64_t count) const {
    switch (type_) {
      case kernels::ValueType::kFloat32:
        return reinterpret_cast<const char*>(payload.section<float>(1, count).data());
      case kernels::ValueType::kInt8:
        return reinterpret_cast<const char*>(payload.section<int8_t>(1, count).data());
      default:
        return reinterpret_cast<const char*>(payload.section<uint16_t>(1, count).data());
    }
  }

  // The scale of int8 values; 0 for other types. Throws INVALID_PAYLOAD for a scale that is
  // negative or too large.
  float checked_scale(const Call& call, const PayloadReader& payload) const {
    if (type_ != kernels::ValueType::kInt8) return 0;
    const float scale = payload.on_host<float>(call, 2, 1)[0];
    if (!(scale >= 0) || !std::isfinite(scale * 127))
      throw payload.error(
          "has the scale ", scale,
          ", expected a scale of at least 0 with which every code is a finite value");
    return scale;
  }

 private:
  static constexpr uint64_t kChunk = 512;

  static kernels::ValueType type_named(std::string_view name) {
    if (name == "fp16") return kernels::ValueType::kFloat16;
    if (name == "bf16") return kernels::ValueType::kBfloat16;
    return name == "int8" ? kernels::ValueType::kInt8 : kernels::ValueType::kFloat32;
  }

  kernels::ValueType type_;
};

}  // namespace penstock::sdk
