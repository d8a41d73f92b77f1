// Payloads of (index, value) pairs on a device: their sums, and the operations of memories on work.
// choice.hpp chooses the pairs.
#pragma once

#include <penstock/memory.h>

#include <kernels/cuda/select.hpp>
#include <kernels/cuda/sparse_sum.hpp>
#include <kernels/fold.hpp>
#include <methods/device/batches.hpp>
#include <methods/device/call.hpp>

#include <array>

namespace penstock::sdk::device {

using kernels::cuda::SparseSender;
using kernels::cuda::SumOver;

inline void compensate(const Call& call, const Item& item, const kernels::Fold& fold) {
  if (item.numel() == 0) return;
  queue_on_device(call, item, "compensate", [&](void* stream) {
    return kernels::cuda::compensate(fold, item.numel(), stream);
  });
}

// Sums for several gradients of a call, with one launch for as many as fit together. If a sum
// continues an earlier sum, they must not share a launch: the caller must call queue() before it
// adds the second sum.
class SparseSumming {
 public:
  SparseSumming(const Call& call, kernels::ValueType type) : call_(call), type_(type) {}
  // For senders that have one value for all their entries.
  explicit SparseSumming(const Call& call)
      : call_(call), type_(kernels::ValueType::kFloat32), have_one_value_(true) {}
  SparseSumming(const SparseSumming&) = delete;
  SparseSumming& operator=(const SparseSumming&) = delete;

  // The type of the values that are added next. The senders of one sum have one type.
  void of(kernels::ValueType type) { type_ = type; }
  void add(const Item& item, const kernels::cuda::SparseSum& sum) {
    Launch& launch = launches_[static_cast<size_t>(type_)];
    if (!launch.sums.has_room_for(sum.senders.size())) queue(type_);
    if (launch.sums.empty()) launch.first = &item.c();
    launch.sums.add(sum);
  }
  void queue() {
    for (size_t type = 0; type < launches_.size(); ++type)
      queue(static_cast<kernels::ValueType>(type));
  }

 private:
  // Sums that wait for a launch. Large gradients often have another type than small ones, so every
  // type has its own.
  struct Launch {
    const penstock_item* first = nullptr;
    kernels::cuda::SparseSums sums;
  };

  void queue(kernels::ValueType type) {
    Launch& launch = launches_[static_cast<size_t>(type)];
    if (launch.sums.empty()) return;
    launch.sums.has_one_value = have_one_value_;
    queue_on_device(
        call_, Item(launch.first), "add the payloads of a bucket with",
        [&](void* stream) { return kernels::cuda::sum_sparse(launch.sums, stream, type); });
    launch = {};
  }

  static constexpr size_t kTypes = static_cast<size_t>(kernels::ValueType::kInt8) + 1;
  const Call& call_;
  kernels::ValueType type_;
  bool have_one_value_ = false;
  std::array<Launch, kTypes> launches_;
};

// Adds the payloads of a decode call. The first call of an item begins with zeros, and the last
// batch applies call.result_scale(). read(payload, item) checks a payload and returns its sender.
template <typename Read>
void add_up(const Call& call, const Items& items, const PayloadReaders& payloads,
            SparseSumming& sums, Read&& read) {
  const bool over_zeros = (call.flags & PENSTOCK_DECODE_FIRST) != 0;
  for (uint64_t i = 0; i < items.size(); ++i) {
    const Item item = items[i];
    const auto add = [&](std::span<const SparseSender> senders, bool is_first, bool is_last) {
      if (!is_first) sums.queue();  // this sum continues the sum before
      sums.add(item, {senders, is_first && over_zeros ? SumOver::kZeros : SumOver::kWhatIsThere,
                      is_last ? call.result_scale() : 1, item.out().data(), item.numel()});
    };
    each_batch<SparseSender>(
        payloads, i, [&](const PayloadReader& payload) { return read(payload, item); }, add);
  }
  sums.queue();
}

// Queues sum_sparse of kernels/cuda.
inline void sum_sparse(const Call& call, const Item& item, std::span<const SparseSender> senders,
                       SumOver over, float scale, std::span<float> out) {
  queue_on_device(call, item, "add the payloads of", [&](void* stream) {
    return kernels::cuda::sum_sparse(senders, over, scale, out.data(), out.size(), stream);
  });
}

// The sender of a payload of pairs in float32. Checks its counts, not its indices: the runtime has
// checked the indices of peers before.
inline SparseSender sender_of(const PayloadReader& payload) {
  if (payload.kind() != PENSTOCK_PAYLOAD_SPARSE)
    throw payload.error("is of kind ", payload.kind(), ", expected sparse");
  const std::span<const uint32_t> indices = payload.section<uint32_t>(0);
  return {indices.data(), payload.section<float>(1, indices.size()).data(), indices.size()};
}

// target += values; both have equally many elements.
inline void add(const Call& call, const Item& item, const float* values, std::span<float> target) {
  compensate(call, item, {PENSTOCK_FORM_AFFINE, 1, 1, 1, values, target.data(), nullptr});
}

// target += payload, dense or sparse, float32.
inline void add_payload(const Call& call, const Item& item, const PayloadReader& payload,
                        std::span<float> target) {
  if (payload.kind() == PENSTOCK_PAYLOAD_DENSE)
    return add(call, item, payload.section<float>(0, target.size()).data(), target);
  const SparseSender sender = sender_of(payload);
  sum_sparse(call, item, {&sender, 1}, SumOver::kWhatIsThere, 1, target);
}

// target = 0.
inline void clear(const Call& call, const Item& item, std::span<float> target) {
  sum_sparse(call, item, {}, SumOver::kZeros, 1, target);
}

}  // namespace penstock::sdk::device
