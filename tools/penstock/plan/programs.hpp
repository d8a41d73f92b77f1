// The programs of a scheme's buckets, as rank 0 of a cluster runs them. The code that compiles the
// plan of a set (core/bucket/compiled_plan.hpp) makes them here without another rank, without an
// open channel and without a message.
#pragma once

#include "core/bucket/compiled_plan.hpp"
#include "tools/penstock/output.hpp"
#include "tools/penstock/plan/simulate.hpp"

#include <array>
#include <memory>
#include <string>

namespace penstock::command {

class Programs {
 public:
  // `plan`: the predicted plan of the scheme's scheduler. All other arguments must outlive this
  // object. FAILED_PRECONDITION if a run with this number of ranks would refuse the plan because of
  // the memory that it needs; OUT_OF_MEMORY if this machine does not have that memory.
  static Result<std::unique_ptr<Programs>> make(const SchemeFile& file, const ModelProfile& profile,
                                                const Cluster& cluster, const Rehearsal& rehearsal,
                                                Plan plan);

  // Lists each program once, with the buckets that have it: one line per stage, with the event that
  // the stage waits for and the name under which its time counts.
  std::string text() const;
  // Lists the buckets, with the words of a set's report.
  Json json() const;

 private:
  Programs(const SchemeFile& file, const ModelProfile& profile, const Cluster& cluster);

  SetContext context_;
  std::array<Channel, 3> transports_, composites_;  // by level; only their groups are used
  CompiledPlan::Gradients gradients_;
  std::unique_ptr<CompiledPlan> compiled_;
};

}  // namespace penstock::command
