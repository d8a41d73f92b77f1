// The choice of a sparse method on a device. It has the functions of the CPU's Choice
// (../sparse.hpp) under equal names, so that a rule that uses only these is written once:
//
//   void choose(const auto& from) const { from.largest(from.most); }
//
// The results of a choice stay on the device. So a rule that reads numbers (counts, magnitudes)
// needs its own device version, as kernels that write a threshold to device memory. A rule that
// reads no numbers can choose from many gradients at once (choices.hpp).
#pragma once

#include <kernels/cuda/reduce.hpp>
#include <methods/device/pairs.hpp>
#include <methods/device/sparse.hpp>

#include <algorithm>

namespace penstock::sdk::device {

// One gradient, the room of its payload, and the fold that the first sweep applies to work. Each of
// largest, above, near and these ends a choice: the payload is complete when the queued work is
// done.
class Choice {
 public:
  Choice(const Call& of, const Item& from, const PayloadWriter& payload, uint64_t most_entries,
         const kernels::Fold* fold)
      : call(of), item(from), most(most_entries), pairs_(of, from, payload), fold_(fold) {}

  const Call& call;
  const Item& item;
  uint64_t most;  // largest number of entries to send

  double unit() const { return work_unit(call, item); }
  uint64_t n() const { return item.numel(); }
  float* work() const { return item.work().data(); }

  // Chooses the k largest entries; between equal magnitudes the lower index.
  void largest(uint64_t k) const {
    if (n() == 0) return these(0);
    select(pairs_.largest(k, fold_));
  }

  // Chooses the entries that reach the threshold; if more than `capacity` do, the `capacity`
  // largest. Zeros are never chosen.
  void above(float threshold, uint64_t capacity) const {
    if (n() == 0) return these(0);
    SelectRequest request = pairs_.above(capacity, fold_);
    request.known_threshold = threshold;
    select(request);
  }

  // As above, with a threshold that work queued earlier writes to device memory. With
  // Zeros::kReachZero, zeros reach a threshold of zero.
  void above(const float* threshold, uint64_t capacity,
             kernels::cuda::Zeros zeros = kernels::cuda::Zeros::kNeverReach) const {
    if (n() == 0) return these(0);
    SelectRequest request = pairs_.above(capacity, fold_);
    request.threshold = threshold;
    request.zeros = zeros;
    select(request);
  }

  // Chooses the entries that reach the threshold, but if fewer than band.least do, the band.target
  // largest, among them zeros only with kFillInstead. The choice must be compensated and have at
  // least one element. Returns the place where the device writes the number of chosen entries.
  const uint64_t* near(const float* threshold, const kernels::cuda::Band& band,
                       kernels::cuda::Reached* reached,
                       kernels::cuda::Zeros zeros = kernels::cuda::Zeros::kNeverReach) const {
    const SelectRequest request =
        near_of(pairs_.above(band.most, nullptr), threshold, band, reached, zeros);
    select(request);
    return request.count;
  }
  // As near, but writes indices() only: work queued later may change the indices, and their number
  // at the returned place. `these` ends the choice.
  uint64_t* indices_near(const float* threshold, const kernels::cuda::Band& band,
                         kernels::cuda::Reached* reached, kernels::cuda::Zeros zeros) const {
    const SelectRequest request =
        near_of(pairs_.indices_above(band.most, nullptr), threshold, band, reached, zeros);
    queue([&](void* stream) { return kernels::cuda::select({&request, 1}, workspace(), stream); });
    return request.count;
  }

  // Chooses the k entries whose ascending indices work queued earlier writes to indices().
  void these(uint64_t k) const { pairs_.these(k); }
  void these(const uint64_t* count, uint64_t capacity) const { pairs_.these(count, capacity); }
  uint32_t* indices() const { return pairs_.indices(); }

  // Compensates work now and returns this choice without a fold: for rules that read work before
  // they choose.
  Choice compensated() const {
    Choice same(*this);
    if (fold_ != nullptr) compensate(call, item, *fold_);
    same.fold_ = nullptr;
    return same;
  }

  // Queues a kernel of the method: launch(stream).
  template <typename Launch>
  void queue(Launch&& launch) const {
    queue_on_device(call, item, "select from", launch);
  }

  // The layout of a call's scratch: numbers of the method, a kernel's workspace.
  static constexpr uint64_t kOwnBytes = 512;
  // Scratch for numbers of the method; no function of this class writes there.
  template <typename T>
  T* own() const {
    static_assert(sizeof(T) <= kOwnBytes && alignof(T) <= 64);
    return static_cast<T*>(call.exec->scratch);
  }
  // Scratch for one kernel at a time.
  kernels::cuda::Workspace workspace() const { return workspace_of(call, kOwnBytes); }

  // Scratch to choose at most `most` of n entries; or scratch with a workspace of so many bytes.
  static uint64_t scratch_bytes(uint64_t n, uint64_t most) {
    return scratch_bytes(std::max(kernels::cuda::select_workspace_bytes(n, most),
                                  kernels::cuda::reduce_workspace_bytes(n)));
  }
  static uint64_t scratch_bytes(uint64_t workspace) { return kOwnBytes + workspace; }

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
    Sending sending(call);
    pairs_.send(request, sending);
    sending.queue();
  }

  Pairs pairs_;
  const kernels::Fold* fold_;
};

// The sender of a payload of pairs. Checks its numbers as on the CPU; the runtime has checked its
// indices before it copied them to the device.
inline SparseSender sender_of(const Call& call, const PayloadReader& payload) {
  if (payload.kind() != PENSTOCK_PAYLOAD_SPARSE)
    throw payload.error("is of kind ", payload.kind(), ", expected sparse");
  const std::span<const uint32_t> indices = payload.section<uint32_t>(0);
  (void)SparseValues::checked_scale(call, payload);
  const bool has_scale = kernels::has_scale(SparseValues::type_in(payload.c()));
  return {indices.data(), SparseValues::bytes_of(payload, indices.size()), indices.size(),
          has_scale ? payload.section<float>(2).data() : nullptr};
}

}  // namespace penstock::sdk::device
