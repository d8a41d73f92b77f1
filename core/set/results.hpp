// Notifies the application of results, so that it need not wait: see penstock_set_on_result.
#pragma once

#include "core/base/status.hpp"

#include <penstock/runtime.h>

#include <vector>

namespace penstock {

class Results {
 public:
  // [control] Between two steps. Null: no notification.
  void tell_to(penstock_result_sink sink, void* context, size_t n_gradients) {
    sink_ = sink;
    context_ = context;
    ended_.reserve(n_gradients);
  }
  bool are_notified() const { return sink_ != nullptr; }

  // [engine] Gathers, without allocating, the gradients of one notification.
  std::vector<uint64_t>& ended() { return ended_; }

  // [any] The caller must hold no lock, because the sink may block.
  void tell(const std::vector<uint64_t>& gradients, const Status& why = {}) const {
    if (sink_ == nullptr || gradients.empty()) return;
    penstock_status* error = to_c(why);
    sink_(context_, gradients.data(), gradients.size(), error);
    (void)from_c(error);
  }
  void tell(uint64_t gradient) const {
    if (sink_ != nullptr) sink_(context_, &gradient, 1, nullptr);
  }

 private:
  penstock_result_sink sink_ = nullptr;
  void* context_ = nullptr;
  std::vector<uint64_t> ended_;
};

}  // namespace penstock
