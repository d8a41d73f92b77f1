// Builds the selection request for one gradient on a device, and moves the chosen values into its
// payload. choice.hpp and choices.hpp make the choices.
#pragma once

#include <kernels/cuda/select.hpp>
#include <kernels/cuda/sparse_values.hpp>
#include <methods/device/call.hpp>
#include <methods/sparse_values.hpp>

#include <array>

namespace penstock::sdk::device {

using kernels::cuda::SelectRequest;
using kernels::cuda::SentEntries;

// Collects the chosen entries of several gradients of a call, whose values a few launches send
// together. The scale and the values of a payload are complete when the work that queue() queues is
// done.
class Sending {
 public:
  explicit Sending(const Call& call) : call_(call) {}
  Sending(const Sending&) = delete;
  Sending& operator=(const Sending&) = delete;

  void add(const Item& item, kernels::ValueType type, const SentEntries& sent) {
    if (n_ == kMost || (n_ > 0 && type != type_)) queue();
    if (n_ == 0) first_ = &item.c();
    type_ = type;
    sent_[n_++] = sent;
  }
  void queue() {
    if (n_ == 0) return;
    queue_on_device(call_, Item(first_), "send the entries chosen from", [&](void* stream) {
      return kernels::cuda::send_values(type_, {sent_.data(), n_}, stream);
    });
    n_ = 0;
  }

 private:
  // More than most buckets have. The entries lie on the caller's stack.
  static constexpr uint64_t kMost = 64;

  const Call& call_;
  kernels::ValueType type_ = kernels::ValueType::kFloat32;
  const penstock_item* first_ = nullptr;
  uint64_t n_ = 0;
  std::array<SentEntries, kMost> sent_;
};

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
    these(nullptr, k);
  }
  // As above, for *count entries, at most `capacity`; `count` is in device memory.
  void these(const uint64_t* count, uint64_t capacity) const {
    Sending sending(*call_);
    add_all(sending, count, capacity);
    sending.queue();
  }

  // Adds what the requested selection left to be sent. sending.queue() completes the payload; it
  // must be called after the selection.
  void send(const SelectRequest& asked, Sending& sending) const {
    if (!exact()) add_all(sending, asked.count, asked.k);
  }

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

  void add_all(Sending& sending, const uint64_t* count, uint64_t capacity) const {
    float* scale = nullptr;
    if (kernels::has_scale(type_)) {
      scale = room<float>(2);
      writer().count(2, 1);
    }
    sending.add(
        item_, type_,
        {{item_.work().data(), indices(), count, capacity}, room<char>(1), scale, item_.keeps()});
  }

  const Call* call_;
  Item item_;
  penstock_payload* payload_;
  kernels::ValueType type_;
};

}  // namespace penstock::sdk::device
