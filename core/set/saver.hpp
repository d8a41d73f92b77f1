// Saving, restoring and resetting a set; and loading what another number of ranks has saved.
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
  // What it uses of the other parts of its set.
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
  // All outlive it.
  Saver(SetContext& set, const Services& services, const Uses& uses)
      : set_(set), services_(services), uses_(uses) {}

  // The step under way, if there is one, has been waited for.
  Status save(std::string& out) const;
  Status load(std::string_view bytes);
  // Collective.
  Status load_shards(std::span<const std::string_view> shards, std::string& said);
  // The step under way has ended, perhaps with an error, so that no message of a later step meets
  // one of it.
  Status reset();

 private:
  // What a load has made aside; once it is whole nothing of the load fails.
  struct Loaded {
    uint64_t step = 0;
    std::unique_ptr<Works> works;
    Carries::Kept carries;
  };
  Status loadable() const;
  Status check_plan_of(const Plan& plan, const PlanFacts& facts, const Fitting& fitting) const;
  Result<std::unique_ptr<Works>> make_works(const SavedSet& saved, Plan plan);
  void go_on_from(Loaded loaded);
  void begin_at(uint64_t step, std::string where);
  // ---- of another number of ranks ----
  Result<std::unique_ptr<Works>> works_of_shards(const std::vector<SavedSet>& saved,
                                                 const std::shared_ptr<const Fitting>& fitting,
                                                 const Resize& to, std::string& said) const;
  Status change_plan(const std::shared_ptr<const Fitting>& fitting, std::string& said);
  Status go_on_from_shards(Loaded loaded, const std::shared_ptr<const Fitting>& fitting,
                           std::string& said);

  SetContext& set_;
  const Services& services_;
  const Uses uses_;
};

}  // namespace penstock
