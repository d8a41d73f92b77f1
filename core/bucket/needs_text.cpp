#include "core/bucket/needs_text.hpp"

#include "core/tensor/dtype.hpp"

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

void add_states(const std::vector<const penstock_tensor*>& states, std::string& text) {
  for (const penstock_tensor* state : states)
    text += fmt::format(" state {} x {} {}", state->shape[0], state->shape[1],
                        dtype_name(state->dtype));
}

}  // namespace

std::string needs_text(const std::vector<std::vector<std::unique_ptr<BucketRun>>>& buckets) {
  std::string text;
  for (const auto& phase : buckets)
    for (const auto& bucket : phase)
      for (const ItemRun& item : bucket->items) {
        text +=
            fmt::format("gradient '{}' [{}, {}) in phase {}: compressor '{}'", item.gradient->name,
                        item.piece.first, item.piece.first + item.piece.numel, bucket->plan.phase,
                        item.compressor->name());
        add_rounds(item, text);
        add_states(item.compressor_states, text);
        text += fmt::format("; memory '{}' work {} scalars {}", item.memory->name(), item.work_is,
                            item.n_scalars);
        add_states(item.memory_states, text);
        text +=
            fmt::format("; {}{}\n", dtype_name(item.dtype), item.passes_through ? " as it is" : "");
      }
  return text;
}

}  // namespace penstock
