// The legs of a step that wait for the next forward: in which order they are launched, and how many
// go side by side.
//
// They share the ranks' links. Launched together they would all end together, and forward would
// wait for its first layer as long as for its last. So they go in the order in which the plan lists
// their messages, which is that of forward, and each only when not much is under way of those
// before it. How much is a matter of when: the first layer is waited for from the start, so what it
// needs goes nearly alone; later ones have time, and many messages side by side keep a link busier
// than few. So as much may be under way as has arrived, between two bounds.
//
// That order prevents a deadlock on ORDERED channels: whatever the plan lists before the first
// message of such a leg is launched before it. Called with the step's lock held.
#pragma once

#include "core/bucket/works.hpp"

namespace penstock {

class ForwardLegs {
 public:
  // The bounds. With 4, 8 and 16 MiB from first to last, steps of ResNet-50 in groups of 1 MiB took
  // 1529, 1512 and 1491 ms at 1 Gb/s (forward of 410 and backward of 820 ms), of which a link that
  // never rests makes 1473.
  static constexpr uint64_t kFirstBytes = uint64_t{2} << 20, kMostBytes = uint64_t{16} << 20;

  // Between two steps; the works of the next one.
  void arm(const std::vector<BucketRun*>& in_order);
  // Forward may begin: from here on they are launched, as those before them arrive.
  void launch();
  // Nobody is going to wait in a forward: all are let go at once.
  void launch_all();
  // The first messages of such a leg have arrived, or the job has ended without any. May come
  // twice.
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
