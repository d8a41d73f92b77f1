#include "core/bucket/forward.hpp"

namespace penstock {
namespace {

void end_backward(BucketRun& bucket) {
  if (std::exchange(bucket.owes_backward, false))
    bucket.context.listener->backward_part_ended(bucket);
}

}  // namespace

Status Defer::begin(BucketRun& bucket) {
  end_backward(bucket);
  return {};
}

Status LetGo::begin(BucketRun& bucket) {
  bucket.context.listener->forward_part_arrived(bucket);
  return {};
}

Status EndBackward::begin(BucketRun& bucket) {
  end_backward(bucket);
  return {};
}

}  // namespace penstock
