// What replaced memories have left over of each gradient, to be added to the gradient of the next
// step: how it comes about between two steps, and what becomes of it at the end of one.
#pragma once

#include "core/bucket/works.hpp"
#include "core/set/saved.hpp"
#include "core/state/resize.hpp"

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace penstock {

class Carries {
 public:
  using Kept = std::vector<Buffer>;  // of each gradient, float32; empty: nothing is left over

  // Both outlive it.
  Carries(SetContext& set, const Works::Gradients& gradients) : set_(set), gradients_(gradients) {}

  // [control] Collective. What a memory of `now` keeps becomes a carry if `next` has another memory
  // there, loses nothing any more, or would keep it on another rank. All other memories keep
  // theirs, by name. `agree` tells all ranks how it went on this one and fails if it failed on any;
  // then nothing has changed.
  Status hand_over(Works& now, const Works& next,
                   const std::function<Status(const Status&)>& agree);
  // [control] Collective. Where a memory of `next` has momentum, a carry goes round it, to the
  // result of a step, and must be equal on all ranks: it becomes their mean.
  Status join(const Works& next);
  // [control] After a step of `now`: a carry is gone once a memory has it, or an applied result.
  void settle(Works& now, uint32_t phase, const std::vector<uint8_t>& forgotten);
  // [control] Nothing is left over.
  void drop();

  // The gradients that have one, a line each.
  std::string names() const;

  // ---- saved states ----
  // Views of what each gradient has; empty: none.
  std::vector<std::string_view> views() const;
  Result<Kept> read(const SavedSet& saved) const;
  // Of the ranks of `saved`, shared out as the mass of memories is. If a gradient has a carry on
  // some rank every rank gets one, of zeros where it has none, because the ranks of a step must
  // agree on that.
  Result<Kept> read_shards(const std::vector<SavedSet>& saved, const Resize& to,
                           std::string& said) const;
  // [control] From now on these; gives back those that were. Does not fail.
  Kept replace(Kept kept);

 private:
  std::vector<ItemRun*> ending_items(Works& now, const Works& next, std::vector<bool>& ends) const;
  Status drain_all(const std::vector<ItemRun*>& ending, const std::vector<bool>& ends);
  Status drain(ItemRun& item);
  Status check_places(const Kept& kept) const;

  SetContext& set_;
  const Works::Gradients& gradients_;
};

}  // namespace penstock
