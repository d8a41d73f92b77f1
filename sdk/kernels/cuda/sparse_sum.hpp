// Sums of sparse payloads on a device, with the bits of a plain loop over senders. Contract:
// workspace.hpp.
#pragma once

#include <kernels/cuda/senders.hpp>
#include <kernels/narrow_values.hpp>

#include <cstdint>
#include <span>

namespace penstock::kernels::cuda {

// The payload of one rank: `count` strictly ascending indices below n, and their values
// (float16 and int8 with a scale in device memory), or one float32 that is the value of all
// entries. The device does not check this; the caller must have checked the indices when they came
// from a peer.
struct SparseSender {
  const uint32_t* indices;
  const void* values;
  uint64_t count;
  const float* scale = nullptr;
};

// Whether a sum begins with zeros, or with the content of out.
enum class SumOver { kZeros, kWhatIsThere };

// One sum: out[i] = (0 or out[i]) + the values for i of all senders, in the order of senders; the
// sum is then multiplied by `scale`, with its own rounding. n must be at most 2^32.
struct SparseSum {
  std::span<const SparseSender> senders;  // at most kMostSenders
  SumOver over;
  float scale;
  float* out;
  uint64_t n;
};

// The sums of one launch, as the kernel takes them: by value. Their arrays must not overlap. Only
// `add` may change the fields.
struct SparseSums {
  bool empty() const { return n_sums == 0; }
  bool has_room_for(uint64_t more_senders) const {
    return n_sums < kMostSums && more_senders <= kMostOfAllSenders - n_senders;
  }
  // Adds a sum; there must be room for it.
  void add(const SparseSum& sum);

  static constexpr uint64_t kMostSums = 24;
  static constexpr uint64_t kMostOfAllSenders = 96;
  struct Target {
    float* out;
    uint64_t n;
    float scale;
    uint32_t first_tile;  // blocks are numbered over all sums, first sum first
    uint16_t first_sender;
    uint16_t n_senders;
    bool over_zeros;
  };
  SparseSender senders[kMostOfAllSenders];
  Target targets[kMostSums];
  uint32_t n_sums = 0;
  uint32_t n_senders = 0;
  uint32_t n_tiles = 0;
  bool has_one_value = false;  // for each sender
};

// One kernel, and one pass over each out. `type` is the type of all values, which are widened as in
// narrow_values.hpp; it is ignored if senders have one value.
[[nodiscard]] int32_t sum_sparse(const SparseSums& sums, void* stream,
                                 ValueType type = ValueType::kFloat32) noexcept;

// sum_sparse for a single sum.
[[nodiscard]] int32_t sum_sparse(std::span<const SparseSender> senders, SumOver over, float scale,
                                 float* out, uint64_t n, void* stream,
                                 ValueType type = ValueType::kFloat32) noexcept;

}  // namespace penstock::kernels::cuda
