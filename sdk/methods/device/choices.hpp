// Choices from many gradients at once, with a few launches for all gradients instead of a few for
// each. A rule may use them if it reads no number before it chooses; such a rule has one form for
// the CPU and a device:
//
//   void choose(const auto& from) const { from.largest(from.most); }
#pragma once

#include <kernels/fold.hpp>
#include <methods/device/choice.hpp>

#include <array>
#include <optional>

namespace penstock::sdk::device {

// Collects the requests of a call's gradients, and queues them when it is full or when queue() is
// called.
class Choices {
 public:
  explicit Choices(const Call& call) : call_(call) {}
  Choices(const Choices&) = delete;
  Choices& operator=(const Choices&) = delete;

  void add(const Pairs& pairs, const SelectRequest& request) {
    if (n_ == kMost) queue();
    pairs_[n_] = pairs;
    requests_[n_++] = request;
  }

  // Payloads are complete when the work that this queues is done.
  void queue() {
    if (n_ == 0) return;
    const std::span<const SelectRequest> requests(requests_.data(), n_);
    queue_on_device(call_, pairs_[0]->item(), n_ == 1 ? "select from" : "select from a bucket with",
                    [&](void* stream) {
                      return kernels::cuda::select(requests, workspace_of(call_, Choice::kOwnBytes),
                                                   stream);
                    });
    Sending sending(call_);
    for (uint64_t i = 0; i < n_; ++i) pairs_[i]->send(requests_[i], sending);
    sending.queue();
    n_ = 0;
  }

  const Call& call() const { return call_; }

 private:
  // More than most buckets have. The requests lie on the caller's stack.
  static constexpr uint64_t kMost = 64;

  const Call& call_;
  uint64_t n_ = 0;
  std::array<SelectRequest, kMost> requests_;
  std::array<std::optional<Pairs>, kMost> pairs_;
};

// The choice from one of many gradients: the functions of Choice (choice.hpp) that may be queued
// later, together with the requests of other gradients.
class OneOfMany {
 public:
  OneOfMany(Choices& choices, const Item& from, const PayloadWriter& payload, uint64_t most_entries,
            const kernels::Fold* fold)
      : item(from),
        most(most_entries),
        choices_(choices),
        pairs_(choices.call(), from, payload),
        fold_(fold) {}

  const Item& item;
  uint64_t most;  // largest number of entries to send

  double unit() const { return work_unit(choices_.call(), item); }

  void largest(uint64_t k) const {
    if (item.numel() == 0) return pairs_.these(0);
    choices_.add(pairs_, pairs_.largest(k, fold_));
  }
  void above(float threshold, uint64_t capacity) const {
    if (item.numel() == 0) return pairs_.these(0);
    SelectRequest request = pairs_.above(capacity, fold_);
    request.known_threshold = threshold;
    choices_.add(pairs_, request);
  }

 private:
  Choices& choices_;
  Pairs pairs_;
  const kernels::Fold* fold_;
};

}  // namespace penstock::sdk::device
