#include "core/bucket/flag.hpp"

#include "core/tensor/elements.hpp"

namespace penstock {
namespace {

// In a sum the past counts one for each rank whose digest is odd, and this is more than all of
// them. In a mean all of them together are one.
constexpr float kNonfinite = 4096, kNonfiniteInMean = 1.25f;

Status other_past(const BucketRun& bucket, std::string_view who) {
  const SetContext& context = bucket.context;
  return mismatch(
      "rank {} has {} the results of its last step, number {}, and {} has not: every rank must do "
      "the same with them (a guard, a loss scaler or zero_grad() that some ranks alone come to)",
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

// Where ranks differ, those whose own digest is even see that of others. (The others cannot tell
// from a sum that is too small by one, for 16 bits do not count that far.)
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
