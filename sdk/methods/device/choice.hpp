// What a sparse method chooses from on a device: the doors of Choice (../sparse.hpp) by the same
// names, so that a rule that asks for nothing else is written once, for both:
//
//   void choose(const auto& from) const { from.largest(from.most); }
//
// What a choice finds stays on the device. So a rule that looks at numbers (counts, magnitudes) is
// written for a device by itself, as kernels that leave a threshold in device memory.
#pragma once

#include <kernels/cuda/reduce.hpp>
#include <kernels/cuda/select.hpp>
#include <kernels/cuda/sparse_values.hpp>
#include <kernels/cuda/values.hpp>
#include <methods/device/sparse.hpp>
#include <methods/sparse_values.hpp>

#include <algorithm>

namespace penstock::sdk::device {

// One gradient, the room of its payload, and what the first sweep has to do to work. A door ends a
// choice: the payload is complete when what it queued is done.
class Choice {
 public:
  Choice(const Call& of, const Item& from, PayloadWriter& payload, uint64_t most_entries,
         const kernels::Fold* fold, kernels::ValueType type)
      : call(of), item(from), most(most_entries), payload_(payload), fold_(fold), type_(type) {}

  const Call& call;
  const Item& item;
  uint64_t most;  // entries that may go

  double unit() const { return work_unit(call, item); }
  uint64_t n() const { return item.numel(); }
  float* work() const { return item.work().data(); }

  // The k largest; between equal magnitudes the lower index goes.
  void largest(uint64_t k) const {
    if (n() == 0) return these(0);
    queue([&](void* stream) {
      return taken_at_once() ? kernels::cuda::take_largest(work(), n(), k, indices(), values(),
                                                           workspace(), stream, fold_)
                             : kernels::cuda::select_largest(work(), n(), k, indices(), values(),
                                                             workspace(), stream, fold_);
    });
    payload_.sparse(k);
    send(nullptr, k);
  }

  // Those that reach the threshold, or of more than `capacity` the largest. Zeros never go.
  void above(float threshold, uint64_t capacity) const {
    if (n() == 0) return these(0);
    float* const at = &numbers()->threshold;
    queue([&](void* stream) { return kernels::cuda::put_number(threshold, at, stream); });
    above(at, capacity);
  }

  // The same with a threshold that work before this leaves in device memory. Zeros may reach one
  // of zero.
  void above(const float* threshold, uint64_t capacity,
             kernels::cuda::Zeros zeros = kernels::cuda::Zeros::kNeverReach) const {
    if (n() == 0) return these(0);
    uint64_t* const count = payload_.sparse_on_device();
    queue([&](void* stream) {
      return taken_at_once()
                 ? kernels::cuda::take_above(work(), n(), threshold, capacity, indices(), values(),
                                             count, workspace(), stream, fold_, zeros)
                 : kernels::cuda::select_above(work(), n(), threshold, capacity, indices(),
                                               values(), count, workspace(), stream, fold_, zeros);
    });
    send(count, capacity);
  }

  // The same, but where fewer than band.least reach it the band.target largest go. Of a choice
  // that is compensated, and not of nothing. Returns where the device writes how many go.
  const uint64_t* near(const float* threshold, const kernels::cuda::Band& band,
                       kernels::cuda::Reached* reached) const {
    uint64_t* const count = payload_.sparse_on_device();
    queue([&](void* stream) {
      return kernels::cuda::select_near(work(), n(), threshold, band, taken_at_once(), indices(),
                                        values(), count, reached, workspace(), stream);
    });
    send(count, band.most);
    return count;
  }

  // The k entries whose ascending indices work before this leaves in indices().
  void these(uint64_t k) const {
    payload_.sparse(k);
    send_all(nullptr, k);
  }
  uint32_t* indices() const { return payload_.room<uint32_t>(0).data(); }

  // The same choice with work compensated: for rules that look at it before they choose.
  Choice compensated() const {
    Choice same(*this);
    if (fold_ != nullptr) compensate(call, item, *fold_);
    same.fold_ = nullptr;
    return same;
  }

  // Queues a kernel of the method's own: launch(stream).
  template <typename Launch>
  void queue(Launch&& launch) const {
    queue_on_device(call, item, "select from", launch);
  }

  // Scratch for numbers of the method's own; what lies there no door touches.
  template <typename T>
  T* own() const {
    static_assert(sizeof(T) <= kOwnBytes && alignof(T) <= 64);
    return reinterpret_cast<T*>(static_cast<char*>(call.exec->scratch) + kNumberBytes);
  }
  // Scratch for one kernel at a time.
  kernels::cuda::Workspace workspace() const { return workspace_of(call, kFixedBytes); }

  // Of n entries, of which at most `most` go; or with a workspace of so many bytes.
  static uint64_t scratch_bytes(uint64_t n, uint64_t most) {
    return scratch_bytes(std::max(kernels::cuda::select_workspace_bytes(n, most),
                                  kernels::cuda::reduce_workspace_bytes(n)));
  }
  static uint64_t scratch_bytes(uint64_t workspace) { return kFixedBytes + workspace; }

 private:
  struct Numbers {
    float threshold;
    float largest;  // of what goes, for int8
  };
  static constexpr uint64_t kNumberBytes = 64;
  static constexpr uint64_t kOwnBytes = 512;
  static constexpr uint64_t kFixedBytes = kNumberBytes + kOwnBytes;
  static_assert(sizeof(Numbers) <= kNumberBytes);

  bool exact() const { return type_ == kernels::ValueType::kFloat32; }
  // Other types leave a rest in work.
  bool taken_at_once() const { return exact() && item.keeps(); }
  float* values() const { return exact() ? payload_.room<float>(1).data() : nullptr; }
  Numbers* numbers() const { return static_cast<Numbers*>(call.exec->scratch); }

  // A selection has written float32 itself.
  void send(const uint64_t* count, uint64_t capacity) const {
    if (!exact()) send_all(count, capacity);
  }

  void send_all(const uint64_t* count, uint64_t capacity) const {
    const kernels::cuda::ChosenEntries chosen{work(), indices(), count, capacity};
    float* scale = nullptr;
    if (type_ == kernels::ValueType::kInt8) {
      scale = payload_.room<float>(2).data();
      payload_.count(2, 1);
      float* const most_of_all = &numbers()->largest;
      queue([&](void* stream) { return kernels::cuda::largest_of(chosen, most_of_all, stream); });
      queue([&](void* stream) { return kernels::cuda::int8_scale(most_of_all, scale, stream); });
    }
    void* const target = payload_.room<char>(1).data();
    queue([&](void* stream) {
      return kernels::cuda::send_values(type_, chosen, target, scale, item.keeps(), stream);
    });
  }

  PayloadWriter& payload_;
  const kernels::Fold* fold_;
  kernels::ValueType type_;
};

// A payload of pairs, whose numbers are checked as on the CPU. Its indices the host has looked at
// before it brought them to the device.
inline SparseSender sender_of(const Call& call, const PayloadReader& payload,
                              const SparseValues& values) {
  if (payload.kind() != PENSTOCK_PAYLOAD_SPARSE)
    throw payload.error("is of kind ", payload.kind(), ", expected sparse");
  const std::span<const uint32_t> indices = payload.section<uint32_t>(0);
  (void)values.checked_scale(call, payload);
  return {indices.data(), values.bytes_of(payload, indices.size()), indices.size(),
          values.type() == kernels::ValueType::kInt8 ? payload.section<float>(2).data() : nullptr};
}

}  // namespace penstock::sdk::device
