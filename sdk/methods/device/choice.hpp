// What a sparse method chooses from on a device: the doors of Choice (../sparse.hpp) by the same
// names, so that a rule that asks for nothing else is written once, for both:
//
//   void choose(const auto& from) const { from.largest(from.most); }
//
// What a choice finds stays on the device. So a rule that looks at numbers (counts, magnitudes) is
// written for a device by itself, as kernels that leave a threshold in device memory. One that
// looks at none chooses from many gradients at once (choices.hpp).
#pragma once

#include <kernels/cuda/reduce.hpp>
#include <methods/device/pairs.hpp>
#include <methods/device/sparse.hpp>

#include <algorithm>

namespace penstock::sdk::device {

// One gradient, the room of its payload, and what the first sweep has to do to work. A door ends a
// choice: the payload is complete when what it queued is done.
class Choice {
 public:
  Choice(const Call& of, const Item& from, const PayloadWriter& payload, uint64_t most_entries,
         const kernels::Fold* fold, kernels::ValueType type)
      : call(of), item(from), most(most_entries), pairs_(of, from, payload, type), fold_(fold) {}

  const Call& call;
  const Item& item;
  uint64_t most;  // entries that may go

  double unit() const { return work_unit(call, item); }
  uint64_t n() const { return item.numel(); }
  float* work() const { return item.work().data(); }

  // The k largest; between equal magnitudes the lower index goes.
  void largest(uint64_t k) const {
    if (n() == 0) return these(0);
    select(pairs_.largest(k, fold_));
  }

  // Those that reach the threshold, or of more than `capacity` the largest. Zeros never go.
  void above(float threshold, uint64_t capacity) const {
    if (n() == 0) return these(0);
    SelectRequest request = pairs_.above(capacity, fold_);
    request.known_threshold = threshold;
    select(request);
  }

  // The same with a threshold that work before this leaves in device memory. Zeros may reach one
  // of zero.
  void above(const float* threshold, uint64_t capacity,
             kernels::cuda::Zeros zeros = kernels::cuda::Zeros::kNeverReach) const {
    if (n() == 0) return these(0);
    SelectRequest request = pairs_.above(capacity, fold_);
    request.threshold = threshold;
    request.zeros = zeros;
    select(request);
  }

  // The same, but where fewer than band.least reach it the band.target largest go, zeros among them
  // only with kFillInstead. Of a choice that is compensated, and not of nothing. Returns where the
  // device writes how many go.
  const uint64_t* near(const float* threshold, const kernels::cuda::Band& band,
                       kernels::cuda::Reached* reached,
                       kernels::cuda::Zeros zeros = kernels::cuda::Zeros::kNeverReach) const {
    const SelectRequest request =
        near_of(pairs_.above(band.most, nullptr), threshold, band, reached, zeros);
    select(request);
    return request.count;
  }
  // The same for indices() alone: work after this may write others, and how many, to the place that
  // is returned. `these` ends the choice.
  uint64_t* indices_near(const float* threshold, const kernels::cuda::Band& band,
                         kernels::cuda::Reached* reached, kernels::cuda::Zeros zeros) const {
    const SelectRequest request =
        near_of(pairs_.indices_above(band.most, nullptr), threshold, band, reached, zeros);
    queue([&](void* stream) { return kernels::cuda::select({&request, 1}, workspace(), stream); });
    return request.count;
  }

  // The k entries whose ascending indices work before this leaves in indices().
  void these(uint64_t k) const { pairs_.these(k); }
  void these(const uint64_t* count, uint64_t capacity) const { pairs_.these(count, capacity); }
  uint32_t* indices() const { return pairs_.indices(); }

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

  // The scratch of a call: numbers of Pairs, those of the method's own, a kernel's workspace.
  static constexpr uint64_t kOwnBytes = 512;
  static constexpr uint64_t kFixedBytes = Pairs::kScratchBytes + kOwnBytes;
  // Scratch for numbers of the method's own; what lies there no door touches.
  template <typename T>
  T* own() const {
    static_assert(sizeof(T) <= kOwnBytes && alignof(T) <= 64);
    return reinterpret_cast<T*>(static_cast<char*>(call.exec->scratch) + Pairs::kScratchBytes);
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
  static SelectRequest near_of(SelectRequest request, const float* threshold,
                               const kernels::cuda::Band& band, kernels::cuda::Reached* reached,
                               kernels::cuda::Zeros zeros) {
    request.threshold = threshold;
    request.least = band.least;
    request.instead = band.target;
    request.reached = reached;
    request.zeros = zeros;
    return request;
  }
  void select(const SelectRequest& request) const {
    queue([&](void* stream) { return kernels::cuda::select({&request, 1}, workspace(), stream); });
    pairs_.send(request);
  }

  Pairs pairs_;
  const kernels::Fold* fold_;
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
