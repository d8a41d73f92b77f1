// A scheme bound to given gradients: instances of its plugins, and the possible compressors of each
// gradient. It needs no run, and knows only the number of ranks.
#pragma once

#include "core/config/config.hpp"
#include "core/control/activity.hpp"
#include "core/fit/item.hpp"
#include "core/fit/rules.hpp"
#include "core/fit/traffic.hpp"
#include "core/plan/ownership.hpp"
#include "core/plan/plan.hpp"
#include "core/plan/route.hpp"
#include "core/plugin/instances.hpp"
#include "core/plugin/registry.hpp"

#include <planning/model.hpp>

#include <map>
#include <memory>
#include <string>
#include <vector>

namespace penstock {

// A gradient, and the choice that a scheme's rules make for it.
struct ChosenGradient {
  const DeclaredGradient* gradient;
  Choice choice;
};
// Takes for each gradient the first rule that matches.
std::vector<ChosenGradient> choose(const Scheme& scheme,
                                   const std::vector<const DeclaredGradient*>& gradients);

// The facts of the run that a bound scheme depends on.
struct BindingSite {
  uint32_t world = 1;
  uint32_t owners_per_host = 1;    // the smallest number of ranks on any host
  bool forward_waits = false;      // the frontend can wait for gradients in the next forward
  bool buckets_are_given = false;  // by the frontend, and are not regrouped
  bool results_at_owners = false;  // each gradient names the only rank that wants its result
  bool connects_devices = false;   // messages of route `flat` can go from device to device
  uint64_t arena_limit_bytes = 0;  // most bytes of payloads; 0: no limit
  CallSlot* calls = nullptr;       // where plugin calls are noted; null: nowhere
  std::string set = {};            // the set that the noted calls are for
};

// Immutable, therefore shared by all compiled plans made from it. It owns the plugin instances.
// [control]
class BoundScheme {
 public:
  // One way to compress a gradient. The first option is named by the scheme, the others are
  // candidates.
  struct Option {
    CompressorInstance* compressor = nullptr;
    MemoryInstance* memory = nullptr;
    MemoryInstance* owner_memory = nullptr;  // for sums that their owner encodes again
    ItemNeeds needs;
    MemoryFacts owner_memory_facts;
    bool is_lossless() const {
      return (needs.compressor_facts.need_flags & PENSTOCK_NEED_LOSSLESS) != 0;
    }
  };

  // The gradients must outlive the bound scheme. If the scheme names no scheduler, scheduler() is
  // null.
  static Result<std::shared_ptr<const BoundScheme>> make(Scheme scheme,
                                                         std::vector<ChosenGradient> gradients,
                                                         Registry& registry,
                                                         const BindingSite& site);

  const Scheme& scheme() const { return scheme_; }
  SchedulerInstance* scheduler() const { return scheduler_.get(); }
  uint32_t period() const { return period_; }
  const std::vector<Option>& options(uint64_t gradient) const { return options_[gradient]; }

  // Adds to `input` the facts of the bound scheme: groups, scheduler, route, world. The caller
  // fills in collectives, frontend, limits and `deterministic`.
  void describe(FitInput& input) const;

  // The most ranks whose gathered payloads are held at once, so that the payloads fit the limit of
  // the site. If they do not fit even with one rank at once, the number is 1, and `describe` says
  // how many bytes they need.
  uint32_t ranks_at_once() const { return ranks_at_once_; }

  // Only one rank wants each result: route `shard` ends when the owners have the results.
  bool results_at_owners() const { return results_at_owners_; }

  // The owners of each gradient's ranges, on a route with owners.
  const Ownership& ownership(uint32_t route) const {
    return adds_in_hosts(route) ? owned_on_host_ : owned_in_world_;
  }

  // The facts that a plan is checked against, and the scheduler's input without measured times.
  PlanFacts plan_facts() const;
  planning::ModelEntries model() const;

  // The planned traffic of a step, with the candidates that move least.
  StageTraffic traffic(const Carriers& by, uint64_t from_step) const;

 private:
  BoundScheme() = default;
  template <typename Table>
  Result<Instance<Table>*> instance(const std::string& name, Registry& registry,
                                    const BindingSite& site);
  Status examine(Registry& registry, const BindingSite& site);
  Status find_owner_memory(const DeclaredGradient& gradient, const Choice& choice, Option& option,
                           Registry& registry, const BindingSite& site);
  static Status check_kept_by_senders(const DeclaredGradient& gradient, const Choice& choice,
                                      const Option& option);
  void share_out_gradients(uint32_t owners_per_host);
  Status take_route();
  // A bit for each PENSTOCK_ROUTE_*.
  static uint64_t routes_of(const std::string& gradient, const Option& option);
  // The bytes of sent and received payloads in a step, with the first candidates.
  struct Arena {
    uint64_t fixed = 0;        // whatever ranks_at_once is
    uint64_t of_one_rank = 0;  // received payloads of one rank that may come in slices
    uint64_t with(uint64_t ranks) const;
  };
  Arena arena() const;
  void take_ranks_at_once(uint64_t limit_bytes);

  Scheme scheme_;
  std::vector<ChosenGradient> gradients_;
  uint32_t world_ = 1;
  uint32_t ranks_at_once_ = 1;
  bool forward_waits_ = false;
  bool buckets_are_given_ = false;
  bool results_at_owners_ = false;
  Ownership owned_on_host_, owned_in_world_;
  std::map<std::string, std::unique_ptr<CompressorInstance>> compressors_;
  std::map<std::string, std::unique_ptr<MemoryInstance>> memories_;
  std::unique_ptr<SchedulerInstance> scheduler_;
  std::vector<std::vector<Option>> options_;
  uint32_t period_ = 1;
};

}  // namespace penstock
