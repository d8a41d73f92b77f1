// Carries. A carry is the unsent mass of a gradient that a replaced memory still held; it is added
// to the gradient of the next step. This class makes carries between two steps, and removes them at
// the end of the step that used them.
#pragma once

#include "core/bucket/compiled_plan.hpp"
#include "core/set/saved.hpp"
#include "core/state/resize.hpp"

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace penstock {

class Carries {
 public:
  using Kept = std::vector<Buffer>;  // a carry for each gradient, float32; empty: no carry

  // The arguments must outlive the object.
  Carries(SetContext& set, const CompiledPlan::Gradients& gradients)
      : set_(set), gradients_(gradients) {}

  // [control] Collective. Turns the mass that a memory of `now` keeps into a carry if `next` has
  // another memory for the gradient, compresses it without loss, or would keep the mass on another
  // rank. All other states are kept, by name. `agree` reports the result of this rank to all ranks
  // and fails if any rank failed; then nothing has changed.
  Status hand_over(CompiledPlan& now, const CompiledPlan& next,
                   const std::function<Status(const Status&)>& agree);
  // [control] Collective. If the memory of `next` has momentum or a reference, the carry bypasses
  // it and is added to the result of the step. Such a carry must be equal on all ranks, so join()
  // replaces it by the mean over the ranks.
  Status join(const CompiledPlan& next);
  // [control] After a step of `now`: removes each carry that a memory has taken or that an applied
  // result contains. forgotten[i]: not 0 if the result of gradient i was not applied.
  void settle(CompiledPlan& now, uint32_t phase, const std::vector<uint8_t>& forgotten);
  // [control] Drops all carries.
  void drop();

  // The names of the gradients with a carry, one a line.
  std::string names() const;

  // ---- saved states ----
  // A view of the carry of each gradient; empty: no carry.
  std::vector<std::string_view> views() const;
  Result<Kept> read(const SavedSet& saved) const;
  // Divides the carries of all ranks in `saved` among the ranks of this run, as the mass of
  // memories is divided. If a gradient had a carry on some rank, every rank gets a carry for it,
  // if necessary of zeros, because the ranks of a step must agree on the gradients with a carry.
  // Adds to `said` a line for the user.
  Result<Kept> read_shards(const std::vector<SavedSet>& saved, const Resize& to,
                           std::string& said) const;
  // [control] Installs `kept` and returns the previous carries. Does not fail.
  Kept replace(Kept kept);

 private:
  std::vector<ItemRun*> ending_items(CompiledPlan& now, const CompiledPlan& next,
                                     std::vector<bool>& ends) const;
  Status drain_all(const std::vector<ItemRun*>& ending, const std::vector<bool>& ends);
  Status drain(ItemRun& item);
  Status check_places(const Kept& kept) const;

  SetContext& set_;
  const CompiledPlan::Gradients& gradients_;
};

}  // namespace penstock
