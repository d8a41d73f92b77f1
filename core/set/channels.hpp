// The channels that only this set uses: the channel of all its ranks, and the channels of the
// levels (within a host, between hosts) that the routes of its plans use.
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
  // The arguments must outlive the object.
  SetChannels(SetContext& set, const Services& services) : set_(set), services_(services) {}

  // [control] Collective. Opens the channel of all ranks. `scheme`: the scheme of the first step.
  Status open(const Scheme& scheme);
  // [control] Collective. Opens the channels that the legs of a level, or the routes of a plan,
  // need, unless they are open.
  Status open_level(uint32_t level);
  Status open_levels_of(const Plan& plan);
  // [control] Collective over the ranks of each channel. Returns the channel of all ranks and, if
  // this rank belongs to them, the channel of the first rank's host and the channel of the first
  // ranks of all hosts.
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
