// Sums of sparse payloads on a device, with the bits of a plain loop over senders. Contract:
// workspace.hpp.
#pragma once

#include <kernels/cuda/senders.hpp>
#include <kernels/narrow_values.hpp>

#include <cstdint>
#include <span>

namespace penstock::kernels::cuda {

// What one rank sent: `count` indices, each above the one before it and below n, and their values,
// for int8 with a scale in device memory; or one float32 that is the value of all of them. The
// device does not look whether that is so: whoever took them from a peer has.
struct SparseSender {
  const uint32_t* indices;
  const void* values;
  uint64_t count;
  const float* scale = nullptr;
};

// Whether a sum begins with zeros, or with what lies there.
enum class SumOver { kZeros, kWhatIsThere };

// One sum: out[i] = (0 or out[i]) + the values for i of all senders, in their order, and that times
// `scale` as a rounding of its own; n at most 2^32.
struct SparseSum {
  std::span<const SparseSender> senders;  // at most kMostSenders
  SumOver over;
  float scale;
  float* out;
  uint64_t n;
};

// Sums that one launch forms, as the kernel takes them: by value. Their arrays must not overlap.
// Only `add` writes to what lies in it.
struct SparseSums {
  bool empty() const { return n_sums == 0; }
  bool has_room_for(uint64_t more_senders) const {
    return n_sums < kMostSums && more_senders <= kMostOfAllSenders - n_senders;
  }
  // Where there is room.
  void add(const SparseSum& sum);

  static constexpr uint64_t kMostSums = 24;
  static constexpr uint64_t kMostOfAllSenders = 96;
  struct Target {
    float* out;
    uint64_t n;
    float scale;
    uint32_t first_tile;  // blocks are numbered through: those of the first sum, of the second
    uint16_t first_sender;
    uint16_t n_senders;
    bool over_zeros;
  };
  SparseSender senders[kMostOfAllSenders];
  Target targets[kMostSums];
  uint32_t n_sums = 0;
  uint32_t n_senders = 0;
  uint32_t n_tiles = 0;
  bool has_one_value = false;  // each sender
};

// One kernel, and one pass over each out. `type` is that of all values, widened as in
// narrow_values.hpp; not looked at where senders have one value.
[[nodiscard]] int32_t sum_sparse(const SparseSums& sums, void* stream,
                                 ValueType type = ValueType::kFloat32) noexcept;

// The same of a single sum.
[[nodiscard]] int32_t sum_sparse(std::span<const SparseSender> senders, SumOver over, float scale,
                                 float* out, uint64_t n, void* stream,
                                 ValueType type = ValueType::kFloat32) noexcept;

}  // namespace penstock::kernels::cuda
