// Launches the legs of a step that run during the next forward: decides their order, and how many
// run side by side.
//
// The legs share the ranks' links. If all were launched together, all would end together, and
// forward would wait for its first layer as long as for its last. So the legs are launched in the
// order in which the plan lists their messages, which is the order of forward, and each leg only
// when few bytes of earlier legs are under way. This limit grows: forward waits for the first layer
// from the start, so its leg travels nearly alone. Later layers have time, and many messages side
// by side keep a link busier than few. So the bytes under way may equal the bytes that have
// arrived, between two bounds.
//
// The order prevents a deadlock on ORDERED channels: all messages that the plan lists before the
// first message of such a leg are launched before it. All calls need the step's lock.
#pragma once

#include "core/bucket/compiled_plan.hpp"

namespace penstock {

class ForwardLegs {
 public:
  // The bounds. With constant limits of 4, 8 and 16 MiB, steps of ResNet-50 in groups of 1 MiB took
  // 1529, 1512 and 1491 ms at 1 Gb/s (forward 410 ms, backward 820 ms). A link that never rests
  // would take 1473 ms.
  static constexpr uint64_t kFirstBytes = uint64_t{2} << 20, kMostBytes = uint64_t{16} << 20;

  // Between two steps. `in_order`: the buckets of the next step that have such a leg.
  void arm(const std::vector<BucketRun*>& in_order);
  // Forward may begin: from here on legs are launched, each as earlier legs arrive.
  void launch();
  // No forward will wait: launches all legs at once.
  void launch_all();
  // The first messages of the bucket's leg have arrived, or its job has ended without any. May be
  // called twice for a bucket.
  void arrived(BucketRun& bucket);

 private:
  uint64_t enough_bytes() const;
  void launch_while_below(uint64_t enough_bytes);

  const std::vector<BucketRun*>* in_order_ = nullptr;
  size_t next_ = 0;
  uint64_t under_way_bytes_ = 0, arrived_bytes_ = 0;
  bool may_launch_ = false;
};

}  // namespace penstock
