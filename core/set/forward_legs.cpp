#include "core/set/forward_legs.hpp"

#include <algorithm>
#include <utility>

namespace penstock {

void ForwardLegs::arm(const std::vector<BucketRun*>& in_order) {
  in_order_ = &in_order;
  next_ = 0;
  under_way_bytes_ = arrived_bytes_ = 0;
  may_launch_ = false;
  for (BucketRun* bucket : in_order) bucket->forward_arrived = false;
}

void ForwardLegs::launch() {
  may_launch_ = true;
  launch_while_below(enough_bytes());
}

void ForwardLegs::launch_all() {
  may_launch_ = true;
  launch_while_below(UINT64_MAX);
}

void ForwardLegs::arrived(BucketRun& bucket) {
  if (bucket.forward_bytes == 0 || std::exchange(bucket.forward_arrived, true)) return;
  arrived_bytes_ += bucket.forward_bytes;
  if (bucket.launched.load()) under_way_bytes_ -= bucket.forward_bytes;
  if (may_launch_) launch_while_below(enough_bytes());
}

uint64_t ForwardLegs::enough_bytes() const {
  return std::clamp(arrived_bytes_, kFirstBytes, kMostBytes);
}

void ForwardLegs::launch_while_below(uint64_t enough_bytes) {
  if (in_order_ == nullptr) return;
  while (next_ < in_order_->size() && under_way_bytes_ < enough_bytes) {
    BucketRun& bucket = *(*in_order_)[next_++];
    if (bucket.forward_arrived) continue;  // void: has ended without this leg
    under_way_bytes_ += bucket.forward_bytes;
    bucket.launch();
  }
}

}  // namespace penstock
