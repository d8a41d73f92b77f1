// The channels that a set uses alone: of all its ranks, and of the levels that its plans go over.
#pragma once

#include "core/bucket/context.hpp"
#include "core/fit/traffic.hpp"
#include "core/plan/plan.hpp"
#include "core/set/services.hpp"

#include <memory>
#include <vector>

namespace penstock {

class SetChannels {
 public:
  // Both outlive it.
  SetChannels(SetContext& set, const Services& services) : set_(set), services_(services) {}

  // [control] Collective. Opens the channel of all ranks; `scheme` is that of the first step.
  Status open(const Scheme& scheme);
  // [control] Collective. What the legs of a level need, or the routes of a plan, where it is not
  // open yet.
  Status open_level(uint32_t level);
  Status open_levels_of(const Plan& plan);
  // [control] Collective over those that are in it. The channels of all ranks, of the first rank's
  // host, and of the first ranks of all hosts, as far as this rank is in them.
  Result<std::vector<Channel*>> open_levels_of_first(const Group& group);
  void close();  // [control]

  const std::vector<Channel*>& opened() const { return opened_; }
  const CollectiveInstance* composite() const { return composite_.get(); }  // null: none
  Carriers carriers() const;

 private:
  SetContext& set_;
  const Services& services_;
  std::unique_ptr<CollectiveInstance> composite_;
  std::vector<Channel*> opened_;
};

}  // namespace penstock
