// Builds the selection request for one gradient on a device, and moves the chosen values into its
// payload. choice.hpp and choices.hpp make the choices.
#pragma once

#include <kernels/cuda/select.hpp>
#include <kernels/cuda/sparse_values.hpp>
#include <kernels/cuda/values.hpp>
#include <methods/device/call.hpp>
#include <methods/sparse_values.hpp>

namespace penstock::sdk::device {

using kernels::cuda::SelectRequest;

// The (index, value) pairs of one payload during one call. It is small: a choice that is queued
// later (choices.hpp) keeps a copy.
class Pairs {
 public:
  Pairs(const Call& call, const Item& item, const PayloadWriter& payload)
      : call_(&call),
        item_(item),
        payload_(&payload.c()),
        type_(SparseValues::type_in(payload.c())) {}

  const Item& item() const { return item_; }
  uint32_t* indices() const { return room<uint32_t>(0); }

  // A request for the k largest entries. Sets the payload's count.
  SelectRequest largest(uint64_t k, const kernels::Fold* fold) const {
    writer().sparse(k);
    return request(k, fold);
  }
  // A request for the entries that reach a threshold, which the caller fills in. The device writes
  // the count.
  SelectRequest above(uint64_t capacity, const kernels::Fold* fold) const {
    SelectRequest above = request(capacity, fold);
    above.count = writer().sparse_on_device();
    return above;
  }
  // As above, but the selection writes indices only.
  SelectRequest indices_above(uint64_t capacity, const kernels::Fold* fold) const {
    SelectRequest request = above(capacity, fold);
    request.values = request.work = nullptr;
    return request;
  }
  // Sends the k entries whose indices work queued earlier writes to indices().
  void these(uint64_t k) const {
    writer().sparse(k);
    send_all(nullptr, k);
  }
  // As above, for *count entries, at most `capacity`; `count` is in device memory.
  void these(const uint64_t* count, uint64_t capacity) const { send_all(count, capacity); }

  // Completes the payload. Must be called after the requested selection.
  void send(const SelectRequest& asked) const {
    if (!exact()) send_all(asked.count, asked.k);
  }

  // Scratch that `send` uses at its beginning.
  static constexpr uint64_t kScratchBytes = 64;

 private:
  bool exact() const { return type_ == kernels::ValueType::kFloat32; }
  PayloadWriter writer() const { return PayloadWriter(payload_); }
  template <typename T>
  T* room(uint64_t section) const {
    return writer().room<T>(section).data();
  }

  // A selection itself writes float32 values. Values of other types are rounded after it, and the
  // rounding error stays in work.
  SelectRequest request(uint64_t k, const kernels::Fold* fold) const {
    float* const work = item_.work().data();
    SelectRequest request{work, item_.numel(), k, indices(), exact() ? room<float>(1) : nullptr};
    if (exact() && item_.keeps()) request.work = work;
    if (fold != nullptr) request.fold = *fold;
    return request;
  }

  void send_all(const uint64_t* count, uint64_t capacity) const {
    const kernels::cuda::ChosenEntries chosen{item_.work().data(), indices(), count, capacity};
    float* scale = nullptr;
    if (kernels::has_scale(type_)) {
      scale = room<float>(2);
      writer().count(2, 1);
      float* const largest = call_->scratch<float>(1).data();
      queue([&](void* stream) { return kernels::cuda::largest_of(chosen, largest, stream); });
      queue(
          [&](void* stream) { return kernels::cuda::value_scale(type_, largest, scale, stream); });
    }
    void* const target = room<char>(1);
    queue([&](void* stream) {
      return kernels::cuda::send_values(type_, chosen, target, scale, item_.keeps(), stream);
    });
  }

  template <typename Launch>
  void queue(Launch&& launch) const {
    queue_on_device(*call_, item_, "select from", launch);
  }

  const Call* call_;
  Item item_;
  penstock_payload* payload_;
  kernels::ValueType type_;
};

}  // namespace penstock::sdk::device
