// Saves, restores and resets a set, and loads states that another number of ranks has saved.
#pragma once

#include "core/set/agreement.hpp"
#include "core/set/saved.hpp"
#include "core/set/step_end.hpp"

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace penstock {

// All functions are [control]. See runtime.h for each.
class Saver {
 public:
  // The other parts of the set that the saver uses.
  struct Uses {
    const Declaration& declaration;
    Consensus& consensus;
    Step& step;
    StepEnd& step_end;
    Agreement& agreement;
    SetChannels& channels;
    const Fits& fits;
    Plans& plans;
    Carries& carries;
    Change& change;
    Residence& residence;
  };
  // The arguments must outlive the object.
  Saver(SetContext& set, const Services& services, const Uses& uses)
      : set_(set), services_(services), uses_(uses) {}

  // The caller must have waited for the step under way, if there is one.
  Status save(std::string& out) const;
  Status load(std::string_view bytes);
  // Collective. `said` receives lines for the user about the loaded states.
  Status load_shards(std::span<const std::string_view> shards, std::string& said);
  // The caller must have ended the step under way, perhaps with an error, so that no message of a
  // later step matches a message of that step.
  Status reset();

 private:
  // The objects that a load makes aside. Once they are complete, the rest of the load cannot fail.
  struct Loaded {
    uint64_t step = 0;
    std::unique_ptr<CompiledPlan> compiled;
    Carries::Kept carries;
  };
  Status loadable() const;
  Status check_plan_of(const Plan& plan, const PlanFacts& facts,
                       const BoundScheme& bound_scheme) const;
  Result<std::unique_ptr<CompiledPlan>> make_compiled_plan(const SavedSet& saved, Plan plan);
  void go_on_from(Loaded loaded);
  void begin_at(uint64_t step, std::string where);
  // ---- states of another number of ranks ----
  Result<std::unique_ptr<CompiledPlan>> compiled_plan_of_shards(
      const std::vector<SavedSet>& saved, const std::shared_ptr<const BoundScheme>& bound_scheme,
      const Resize& to, std::string& said) const;
  Status change_plan(const std::shared_ptr<const BoundScheme>& bound_scheme, std::string& said);
  Status go_on_from_shards(Loaded loaded, const std::shared_ptr<const BoundScheme>& bound_scheme,
                           std::string& said);

  SetContext& set_;
  const Services& services_;
  const Uses uses_;
};

}  // namespace penstock
