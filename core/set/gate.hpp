// The gate of a set. While the set does not know whether its ranks go on from equal states, the
// gate is shut and buckets wait before it.
#pragma once

#include <functional>
#include <utility>
#include <vector>

namespace penstock {

class BucketRun;

// Calls must exclude each other: Step makes them with its lock held.
class Gate {
 public:
  // Shuts the gate. `ask` is to be called once, when the first bucket is held.
  void shut(std::function<void()> ask) {
    is_shut_ = true;
    ask_ = std::move(ask);
  }
  // False if the gate is shut: the bucket is held now.
  bool lets_pass(BucketRun& bucket) {
    if (is_shut_) held_.push_back(&bucket);
    return !is_shut_;
  }
  // Returns `ask`, once. The caller must call it without a lock, because the answer comes on this
  // thread if the run was given up.
  std::function<void()> take_question() { return std::exchange(ask_, nullptr); }
  // Opens the gate and returns the buckets that were held.
  std::vector<BucketRun*> open() {
    is_shut_ = false;
    ask_ = nullptr;
    return std::exchange(held_, {});
  }
  void drop_held() { held_.clear(); }

 private:
  bool is_shut_ = false;
  std::function<void()> ask_;
  std::vector<BucketRun*> held_;
};

}  // namespace penstock
