#include "core/bucket/works.hpp"

#include "core/bucket/layout.hpp"

#include <algorithm>
#include <map>
#include <new>

namespace penstock {

Result<std::unique_ptr<Works>> Works::make(SetContext& context,
                                           std::shared_ptr<const Fitting> fitting, Plan plan,
                                           const Gradients& gradients, const StateStore* earlier) {
  try {
    std::unique_ptr<Works> works(new Works(std::move(fitting), std::move(plan), earlier));
    PENSTOCK_TRY(works->make_buckets(context, gradients));
    works->index(gradients.size());
    works->number_messages();
    works->states_.settle();
    return works;
  } catch (const std::bad_alloc&) {
    // The other ranks wait to hear of it.
    return out_of_memory("the buckets of set '{}' take more memory than there is", context.name);
  }
}

Status Works::make_buckets(SetContext& context, const Gradients& gradients) {
  phases_.resize(fitting_->period());
  ScratchNeed need;
  std::vector<std::vector<bool>> present(period(), std::vector<bool>(gradients.size()));
  for (const planning::Bucket& bucket : plan_.buckets) {
    for (const planning::Piece& piece : bucket.pieces) present[bucket.phase][piece.gradient] = true;
    PENSTOCK_TRY(make_bucket(context, bucket, gradients, need));
  }
  // Gradients that a phase leaves out are compensated in it: they share a bucket.
  for (uint32_t phase = 0; phase < period(); ++phase) {
    planning::Bucket rest;
    rest.phase = phase;
    for (size_t i = 0; i < gradients.size(); ++i)
      if (!present[phase][i]) rest.pieces.push_back({i, 0, gradients[i]->numel, 0});
    if (!rest.pieces.empty()) PENSTOCK_TRY(make_bucket(context, rest, gradients, need));
  }
  std::optional<Buffer> scratch = Buffer::try_make_unwritten(need.bytes);
  if (!scratch)
    return out_of_memory("compressor '{}' wants {} bytes of scratch for a bucket of {} gradients",
                         need.compressor, need.bytes, need.n_gradients);
  scratch_ = std::move(*scratch);
  return {};
}

Status Works::make_bucket(SetContext& context, const planning::Bucket& plan,
                          const Gradients& gradients, ScratchNeed& scratch) {
  Phase& phase = phases_[plan.phase];
  auto bucket = std::make_unique<BucketRun>(context, plan, static_cast<uint32_t>(phase.size()));
  for (const planning::Piece& piece : plan.pieces) {
    ItemRun& item = bucket->items.emplace_back();
    const Fitting::Option& option = fitting_->options(piece.gradient)[piece.choice];
    item.gradient = gradients[piece.gradient].get();
    item.piece = piece;
    item.compressor = option.compressor;
    item.memory = option.memory;
    PENSTOCK_ASSIGN(item.dtype, working_dtype(*item.gradient, *item.compressor));
  }
  PENSTOCK_TRY(plan_items(*bucket, states_, scratch));
  PENSTOCK_TRY(lay_out(*bucket, states_));
  phase.push_back(std::move(bucket));
  return {};
}

void Works::index(size_t n_gradients) {
  where_.assign(period(), std::vector<std::vector<BucketRun*>>(n_gradients));
  for (uint32_t phase = 0; phase < period(); ++phase)
    for (auto& bucket : phases_[phase]) {
      defers_ = defers_ || bucket->defers();
      for (const planning::Piece& piece : bucket->plan.pieces) {
        auto& in = where_[phase][piece.gradient];
        if (!in.empty() && in.back() == bucket.get()) continue;
        in.push_back(bucket.get());
        ++bucket->n_gradients;
      }
    }
}

// Positions of messages in a phase: as the plan lists them, else bucket after bucket, leg after
// leg, round after round.
void Works::number_messages() {
  messages_.assign(period(), 0);
  std::map<planning::MessagePlace, size_t> places;
  for (size_t i = 0; i < plan_.messages.size(); ++i) places.try_emplace(plan_.messages[i], i);
  for (uint32_t phase = 0; phase < period(); ++phase) {
    std::vector<std::pair<size_t, MessageRun*>> listed;
    for (auto& bucket : phases_[phase]) {
      const auto list = [&](uint32_t leg, uint32_t round, MessageRun& message) {
        const auto found = places.find({phase, bucket->number, leg, round});
        listed.emplace_back(found != places.end() ? found->second : plan_.messages.size(),
                            &message);
      };
      if (bucket->prologue) list(0, 0, *bucket->prologue);
      bucket->each_message(list);
    }
    std::stable_sort(listed.begin(), listed.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    for (auto& [position, message] : listed) message->order = messages_[phase]++;
    tags_per_step_ = std::max(tags_per_step_, messages_[phase]);
  }
}

}  // namespace penstock
