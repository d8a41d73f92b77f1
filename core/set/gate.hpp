// The gate of a set that does not know yet whether its ranks go on from equal states: buckets wait
// before it.
#pragma once

#include <functional>
#include <utility>
#include <vector>

namespace penstock {

class BucketRun;

// All calls exclude each other: whoever has one sees to that.
class Gate {
 public:
  // Shuts it. `ask` is called once, when there is a bucket to hold.
  void shut(std::function<void()> ask) {
    is_shut_ = true;
    ask_ = std::move(ask);
  }
  // False where the bucket is held now.
  bool lets_pass(BucketRun& bucket) {
    if (is_shut_) held_.push_back(&bucket);
    return !is_shut_;
  }
  // What to call now, without a lock: where the run was given up the answer comes on this thread.
  std::function<void()> take_question() { return std::exchange(ask_, nullptr); }
  // Opens it: those that were held.
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
