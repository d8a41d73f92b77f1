// Notifies the application of results, so that it need not wait: see penstock_set_on_result.
#pragma once

#include "core/base/status.hpp"

#include <penstock/runtime.h>

#include <vector>

namespace penstock {

// Whom results are told. The sink may block, so whoever tells takes a copy under the step's lock
// and calls it without: the control thread may give a run up while the application changes the
// sink.
struct ResultListener {
  penstock_result_sink sink = nullptr;  // null: no notification
  void* context = nullptr;

  explicit operator bool() const { return sink != nullptr; }
  // [any] The caller must hold no lock.
  void tell(const std::vector<uint64_t>& gradients, const Status& why = {}) const {
    if (sink == nullptr || gradients.empty()) return;
    penstock_status* error = to_c(why);
    sink(context, gradients.data(), gradients.size(), error);
    (void)from_c(error);
  }
  void tell(uint64_t gradient) const {
    if (sink != nullptr) sink(context, &gradient, 1, nullptr);
  }
};

class Results {
 public:
  // [control] Between two steps.
  void tell_to(ResultListener listener, size_t n_gradients) {
    listener_ = listener;
    ended_.reserve(n_gradients);
  }
  bool are_notified() const { return bool(listener_); }
  ResultListener listener() const { return listener_; }

  // [engine] Gathers, without allocating, the gradients of one notification.
  std::vector<uint64_t>& ended() { return ended_; }

 private:
  ResultListener listener_;
  std::vector<uint64_t> ended_;
};

}  // namespace penstock
