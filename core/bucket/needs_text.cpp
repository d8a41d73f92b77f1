#include "core/bucket/needs_text.hpp"

#include "core/bucket/bucket.hpp"
#include "core/tensor/dtype.hpp"

#include <algorithm>

namespace penstock {

namespace {

void add_rounds(const ItemRun& item, std::string& text) {
  if (item.rounds.empty()) text += " no round";
  for (const RoundNeed& round : item.rounds) {
    text +=
        fmt::format(" {}{}{}(", round.combine == PENSTOCK_COMBINE_SUM ? "sum" : "gather",
                    round.combine == PENSTOCK_COMBINE_SUM && round.reduction != PENSTOCK_REDUCE_SUM
                        ? fmt::format(" by reduction {}", round.reduction)
                        : std::string(),
                    round.result == PENSTOCK_RESULT_FINAL ? " final" : "");
    for (const SectionNeed& section : round.sections)
      text += fmt::format("{}{}{} {} role {}", &section == &round.sections.front() ? "" : ", ",
                          section.exact ? "" : "up to ", section.capacity,
                          dtype_name(section.dtype), section.role);
    text += round.flags == 0 ? ")" : fmt::format(") flags {}", round.flags);
  }
}

// Each kind of place forms sums in an order of its own, so a result that must have equal bits on
// all ranks must be formed on one kind of place. A path that no other kind of place can follow must
// be equal on all ranks too.
std::string place_text(const BucketRun& bucket, const Coding& coding, const ItemRun& item) {
  if (const std::string_view way = item.place().way(bucket, coding, item); !way.empty())
    return fmt::format(" {}", way);
  const bool same_bits = std::any_of(
      item.rounds.begin(), item.rounds.end(),
      [](const RoundNeed& round) { return (round.flags & PENSTOCK_ROUND_SAME_BITS) != 0; });
  if (!same_bits) return {};
  return fmt::format(" {}", item.place().name());
}

// The number of ranks whose payloads come at once, if the set has more. It says nothing of groups,
// because on route `hierarchical` ranks may have groups of different sizes.
std::string slices_text(const BucketRun& bucket, const ItemRun& item) {
  const bool gathers =
      std::any_of(item.rounds.begin(), item.rounds.end(),
                  [](const RoundNeed& round) { return round.combine == PENSTOCK_COMBINE_GATHER; });
  if (!gathers || !item.place().works_at_once() || bucket.ranks_at_once >= bucket.context.world)
    return {};
  return fmt::format(" of {} ranks at once", bucket.ranks_at_once);
}

}  // namespace

std::string states_text(const penstock_state_declaration* const* states, uint64_t n) {
  std::string text;
  for (uint64_t i = 0; i < n; ++i)
    text += fmt::format(" state {} x {} {}", states[i]->rows, states[i]->cols,
                        dtype_name(states[i]->dtype));
  return text;
}

std::string needs_text(const std::vector<std::vector<std::unique_ptr<BucketRun>>>& buckets) {
  std::string text;
  const auto add = [&](const BucketRun& bucket, const Coding& coding, const ItemRun& item) {
    text += fmt::format("gradient '{}' [{}, {}) in phase {}, leg {}: compressor '{}'",
                        item.gradient->name, item.range.first, item.range.end(), bucket.plan.phase,
                        coding.leg, item.compressor->name());
    add_rounds(item, text);
    text += slices_text(bucket, item);
    text += fmt::format("{}; memory '{}' work {} scalars {}{}; {}{}{}\n", item.compressor_wants,
                        item.memory->name(), item.work_is, item.n_scalars, item.memory_wants,
                        dtype_name(item.dtype), item.passes_through ? " as it is" : "",
                        place_text(bucket, coding, item));
  };
  for (const auto& phase : buckets)
    for (const auto& bucket : phase)
      for (const auto& coding : bucket->codings)
        for (const ItemRun& item : coding->items) add(*bucket, *coding, item);
  return text;
}

}  // namespace penstock
