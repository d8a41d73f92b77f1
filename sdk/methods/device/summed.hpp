// Device functions of methods whose payloads the transport sums: uncompressed values, and casts to
// 16 bits.
#pragma once

#include <penstock/memory.h>
#include <kernels/cuda/dense.hpp>
#include <kernels/cuda/values.hpp>
#include <kernels/narrow_values.hpp>
#include <methods/device/call.hpp>

#include <array>
#include <optional>
#include <span>
#include <string_view>

namespace penstock::sdk::device {

inline void copy_bytes(const Call& call, const Item& item, const void* source, void* target,
                       uint64_t bytes) {
  queue_on_device(call, item, "copy", [&](void* stream) {
    return kernels::cuda::dense::copy(source, target, bytes, stream);
  });
}

inline void clear_bytes(const Call& call, const Item& item, void* target, uint64_t bytes) {
  queue_on_device(call, item, "clear",
                  [&](void* stream) { return kernels::cuda::dense::clear(target, bytes, stream); });
}

inline void clear_floats(const Call& call, const Item& item, std::span<float> target) {
  clear_bytes(call, item, target.data(), target.size_bytes());
}

// out = scale * values.
inline void copy_scaled(const Call& call, const Item& item, std::span<const float> values,
                        float scale, std::span<float> out) {
  queue_on_device(call, item, "copy the sum of", [&](void* stream) {
    return kernels::cuda::dense::copy_scaled(values.data(), out.data(), out.size(), scale, stream);
  });
}

// sent = work, after `fold` unless it is null. If the item keeps, work becomes zero.
inline void send_all(const Call& call, const Item& item, std::span<float> sent,
                     const kernels::Fold* fold) {
  using kernels::cuda::dense::Left;
  const std::span<float> work = item.work();
  queue_on_device(call, item, "copy", [&](void* stream) {
    return kernels::cuda::dense::send_all(work.data(), sent.data(), work.size(),
                                          item.keeps() ? Left::kNothing : Left::kAll, stream, fold);
  });
}

// ---- Casts to 16 bits ----

// Collects the requests of a call's items and queues many at once, so that a bucket takes few
// launches. queue(span of requests, stream) is the function of a kernel.
template <typename Request, typename Queue>
class TogetherOnDevice {
 public:
  TogetherOnDevice(const Call& call, std::string_view what, const Queue& queue)
      : call_(call), what_(what), queue_(queue) {}

  void add(const Item& item, const Request& request) {
    if (n_ == requests_.size()) flush();
    if (n_ == 0) first_ = item;
    requests_[n_++] = request;
  }
  // Queues the requests that are not queued yet. Must be called after the last add.
  void flush() {
    if (n_ == 0) return;
    const std::span<const Request> some(requests_.data(), n_);
    n_ = 0;
    queue_on_device(call_, *first_, what_, [&](void* stream) { return queue_(some, stream); });
  }

 private:
  const Call& call_;
  std::string_view what_;
  const Queue& queue_;
  std::array<Request, 64> requests_;  // of a bucket, with nothing allocated in a step
  uint64_t n_ = 0;
  std::optional<Item> first_;  // the item that an error names
};
template <typename Request, typename Queue>
TogetherOnDevice<Request, Queue> together_on_device(const Call& call, std::string_view what,
                                                    const Queue& queue) {
  return {call, what, queue};
}

// A request to round work into `bits`, after `fold` unless it is null. If the item keeps, the sent
// values are taken out of work.
inline kernels::cuda::NarrowRequest narrow_request(const Item& item, std::span<uint16_t> bits,
                                                   const kernels::Fold* fold) {
  const kernels::Fold as_it_is{PENSTOCK_FORM_NONE, 0,       0,       0,      nullptr,
                               item.work().data(), nullptr, nullptr, nullptr};
  return {fold != nullptr ? *fold : as_it_is, bits.data(), item.numel(), item.keeps()};
}

}  // namespace penstock::sdk::device
