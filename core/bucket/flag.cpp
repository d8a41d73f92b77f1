#include "core/bucket/flag.hpp"

#include "core/tensor/elements.hpp"

namespace penstock {
namespace {

// In a sum, each rank whose digest of the past is odd adds 1, and kNonfinite is more than all these
// ranks add. In a mean, all these ranks together add at most 1.
constexpr float kNonfinite = 4096, kNonfiniteInMean = 1.25f;

Status other_past(const BucketRun& bucket, std::string_view who) {
  const SetContext& context = bucket.context;
  return mismatch(
      "rank {} has {} the results of its last step, number {}, but {} has not: every rank must "
      "treat its results in the same manner; look for a guard, a loss scaler or a zero_grad() that "
      "only some ranks reach",
      context.at(PENSTOCK_LEVEL_WORLD).group.ranks()[context.rank],
      context.last_was_applied ? "applied" : "forgotten (all or some of)", context.attempt, who);
}

bool is_odd(uint32_t past) {
  return (past & 1) != 0;
}

}  // namespace

uint32_t wire_word(const BucketRun& bucket, uint32_t flags) {
  return flags | bucket.context.past << 16;
}

Status check_past(const BucketRun& bucket, const MessageRun& message, uint32_t rank,
                  uint32_t word) {
  if (word >> 16 == bucket.context.past) return {};
  return other_past(bucket, fmt::format("rank {}", message.link->channel->group.world_ranks[rank]));
}

float summed_flag(const BucketRun& bucket, bool is_nonfinite) {
  return (is_nonfinite ? kNonfinite : 0) + (is_odd(bucket.context.past) ? 1 : 0);
}

// If digests differ, the ranks with an even digest see that another digest is odd. (The ranks with
// an odd digest cannot see it: the sum is too small by one, and 16 bits do not count exactly
// enough.)
Status take_summed_flag(BucketRun& bucket, float sum, bool is_mean) {
  if (!(sum < (is_mean ? kNonfiniteInMean : kNonfinite))) {
    bucket.is_void = true;
    return {};
  }
  if (sum > 0 && !is_odd(bucket.context.past)) return other_past(bucket, "another rank");
  return {};
}

void write_flag(uint32_t dtype, void* elements, uint64_t index, float flag) {
  auto* bytes = static_cast<std::byte*>(elements);
  from_float32(dtype, &flag, bytes + index * dtype_bytes(dtype), 1);
}

float flag_at(uint32_t dtype, const void* elements, uint64_t index) {
  float flag = 0;
  to_float32(dtype, static_cast<const std::byte*>(elements) + index * dtype_bytes(dtype), &flag, 1);
  return flag;
}

}  // namespace penstock
