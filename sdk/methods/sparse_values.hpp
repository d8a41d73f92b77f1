// Values of sparse payloads in four types: float32, bfloat16, and float16 and int8 with one scale;
// or as signs with two means (sign_values.hpp).
//
// The values that are taken out of `work` are exactly the values that the receiver will add. The
// rounding error, and the part that a narrow type cannot hold, stay in `work`, so no mass is lost.
// SparseCompressor (sparse.hpp) plans a round, writes the payload whose indices were chosen, and
// adds the payloads in decode.
#pragma once

#include <kernels/narrow_values.hpp>
#include <kernels/scatter.hpp>
#include <methods/agreed.hpp>
#include <methods/sign_values.hpp>
#include <penstock/compressor.hpp>
#include <penstock/options.hpp>

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>

namespace penstock::sdk {

class SparseValues {
 public:
  using Type = kernels::ValueType;

  static Option option() {
    return choice_option("value_type", "auto", {"auto", "fp32", "fp16", "bf16", "int8", "sign"})
        .summary(
            "type of the values on the wire; rounding errors stay in the memory. auto: fp16 if a "
            "memory keeps them and the processor handles the payloads, otherwise fp32. sign: one "
            "bit for each value and two means, on the processor; needs a memory that keeps the "
            "rest");
  }
  explicit SparseValues(const Options& options)
      : are_signs_(options.choice("value_type") == "sign"),
        named_(type_named(options.choice("value_type"))) {}

  // PENSTOCK_COMPRESSOR_* flags of a method with these values. A mean is far from most values that
  // it stands for, so without a memory that keeps the difference signs are refused.
  uint32_t memory_flags() const {
    constexpr uint32_t kAlways = PENSTOCK_COMPRESSOR_NEEDS_MEMORY;
    return are_signs_ ? kAlways | PENSTOCK_COMPRESSOR_NEEDS_KEPT_MASS : kAlways;
  }
  // Whether the device kernels have these values.
  bool work_on_devices() const { return !are_signs_; }

  // The type of the values of an item of which at most `most` entries are sent. Without a name in
  // the options, ITEM_KEEP decides (compressor.h): the runtime sets it for plan if narrow values
  // may travel. A few values need less room than the scale with its count. If every entry may be
  // sent, nothing has to stay: a density of 1 sends the whole gradient, and what a memory kept.
  Type type_of(const Item& item, uint64_t most) const {
    constexpr uint64_t kFewest = 8;
    if (named_) return *named_;
    const bool saves = most >= kFewest && most < item.numel();
    return item.keeps() && saves ? Type::kFloat16 : Type::kFloat32;
  }
  // The type of the values in a payload, as its item was planned.
  static Type type_in(const penstock_payload& payload) {
    const uint32_t dtype = payload.n_sections > 1 ? payload.sections[1]->dtype : 0;
    if (dtype == PENSTOCK_FLOAT16) return Type::kFloat16;
    if (dtype == PENSTOCK_BFLOAT16) return Type::kBfloat16;
    return dtype == PENSTOCK_INT8 ? Type::kInt8 : Type::kFloat32;
  }
  static uint32_t dtype_of(Type type) {
    if (type == Type::kFloat16) return PENSTOCK_FLOAT16;
    if (type == Type::kBfloat16) return PENSTOCK_BFLOAT16;
    return type == Type::kInt8 ? PENSTOCK_INT8 : PENSTOCK_FLOAT32;
  }

  // Plans a gathered round with room for `capacity` entries, of which usually at most `most` are
  // used: section 0 has indices, section 1 values, and for types with a scale section 2 the scale.
  // `exact`: there are always `capacity` entries. Signs have other sections (sign_values.hpp).
  Round& plan(const Item& item, CompressorNeed& need, uint64_t most, uint64_t capacity,
              bool exact) const {
    if (are_signs_) return SignValues::plan(need, capacity);
    const Type type = type_of(item, most);
    Round& round = need.round(PENSTOCK_COMBINE_GATHER);
    round.section(PENSTOCK_ROLE_INDICES, PENSTOCK_UINT32, capacity, exact, PENSTOCK_SPLIT_BY_INDEX)
        .section(PENSTOCK_ROLE_VALUES, dtype_of(type), capacity, exact, PENSTOCK_SPLIT_BY_INDEX);
    if (kernels::has_scale(type))
      round.section(PENSTOCK_ROLE_SCALES, PENSTOCK_FLOAT32, 1, true, PENSTOCK_SPLIT_COPY);
    return round;
  }

  // Completes the payload whose first `count` indices are written: writes the values of work at
  // these indices, and if the item keeps, takes the sent values out of work.
  static void write(const Item& item, PayloadWriter& payload, uint64_t count) {
    if (SignValues::are_in(payload.c())) return SignValues::write(item, payload, count);
    const std::span<float> work = item.work();
    const Type type = type_in(payload.c());
    const uint32_t* indices = payload.room<uint32_t>(0).data();
    payload.sparse(count);
    float scale = 1;
    if (kernels::has_scale(type)) {
      float largest = 0;
      for (uint64_t j = 0; j < count; ++j) largest = std::max(largest, std::fabs(work[indices[j]]));
      payload.room<float>(2)[0] = scale = kernels::value_scale(type, largest);
      payload.count(2, 1);
    }
    auto* target = payload.room<char>(1).data();
    float exact[kChunk], rounded[kChunk];
    for (uint64_t begin = 0; begin < count; begin += kChunk) {
      const uint64_t size = std::min(kChunk, count - begin);
      for (uint64_t j = 0; j < size; ++j) exact[j] = rounded[j] = work[indices[begin + j]];
      kernels::narrow_values(type, rounded, size, target + begin * bytes_per_value(type), scale);
      if (!item.keeps()) continue;
      if (type == Type::kFloat32) {
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
    Type type;
    SignValues::Reader signs;  // in place of the three members above
  };
  static uint64_t sender_bytes(uint32_t world) { return whole_lines(world * sizeof(Sender)); }

  // A payload to be added to `n` elements. Throws INVALID_PAYLOAD for a kind, count, type, scale or
  // index that does not fit, and for an index below the index before.
  static Sender checked(const Call& call, const PayloadReader& payload, uint64_t n) {
    Sender sender{};
    const std::span<const uint32_t> indices = payload.section<uint32_t>(0);
    sender.next = indices.data();
    sender.end = indices.data() + indices.size();
    if (SignValues::are_in(payload.c())) {
      sender.signs = SignValues::checked(payload, indices.size());
    } else {
      if (payload.kind() != PENSTOCK_PAYLOAD_SPARSE)
        throw payload.error("is of kind ", payload.kind(), ", expected sparse");
      sender.values = bytes_of(payload, indices.size());
      sender.scale = checked_scale(call, payload);
      sender.type = type_in(payload.c());
    }
    check_indices(payload, indices, n);
    return sender;
  }

  // Adds the entries of `sender` in [first, first + tile.size()) to `tile`, the sum so far.
  static void add(Sender& sender, uint64_t first, std::span<float> tile) {
    float values[kChunk];
    while (sender.next != sender.end && *sender.next - first < tile.size()) {
      uint64_t size = 0;
      const uint64_t most = std::min<uint64_t>(kChunk, sender.end - sender.next);
      while (size < most && sender.next[size] - first < tile.size()) ++size;
      if (sender.signs) {
        sender.signs.take(size, values);
      } else {
        kernels::widen_values(sender.type, sender.values, size, values, sender.scale);
        sender.values += size * bytes_per_value(sender.type);
      }
      for (uint64_t j = 0; j < size; ++j) tile[sender.next[j] - first] += values[j];
      sender.next += size;
    }
  }

  // The values of a payload in the type in which they were sent; there must be `count` values.
  static const char* bytes_of(const PayloadReader& payload, uint64_t count) {
    switch (type_in(payload.c())) {
      case Type::kFloat32:
        return reinterpret_cast<const char*>(payload.section<float>(1, count).data());
      case Type::kInt8:
        return reinterpret_cast<const char*>(payload.section<int8_t>(1, count).data());
      default:
        return reinterpret_cast<const char*>(payload.section<uint16_t>(1, count).data());
    }
  }

  // The scale of a payload; 1 for types without a scale. Throws INVALID_PAYLOAD for a scale that no
  // sender computes, or with which a code is not finite.
  static float checked_scale(const Call& call, const PayloadReader& payload) {
    const Type type = type_in(payload.c());
    if (!kernels::has_scale(type)) return 1;
    const float scale = payload.on_host<float>(call, 2, 1)[0];
    if (kernels::is_scale(type, scale)) return scale;
    throw payload.error("has the scale ", scale,
                        type == Type::kFloat16 ? ", expected a power of two from 2^-126 to 2^112"
                                               : ", expected a scale of at least 0 with which "
                                                 "every code is a finite value");
  }

 private:
  static constexpr uint64_t kChunk = 512;

  static void check_indices(const PayloadReader& payload, std::span<const uint32_t> indices,
                            uint64_t n) {
    const uint64_t good = kernels::indices_in_range(indices.data(), indices.size(), n);
    if (good != indices.size())
      throw payload.error("has index ", indices[good], " at entry ", good, ", expected one below ",
                          n);
    const auto fall = std::adjacent_find(indices.begin(), indices.end(), std::greater<>());
    if (fall != indices.end())
      throw payload.error("has index ", fall[1], " behind ", fall[0],
                          ", expected indices to ascend");
  }

  static uint64_t bytes_per_value(Type type) { return dtype_bytes(dtype_of(type)); }

  static std::optional<Type> type_named(std::string_view name) {
    if (name == "auto") return std::nullopt;
    if (name == "fp16") return Type::kFloat16;
    if (name == "bf16") return Type::kBfloat16;
    return name == "int8" ? Type::kInt8 : Type::kFloat32;
  }

  bool are_signs_;
  std::optional<Type> named_;  // not for signs
};

}  // namespace penstock::sdk
