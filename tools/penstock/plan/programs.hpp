// The programs of a scheme's buckets, as rank 0 of a cluster runs them: made by what makes those of
// a set (core/bucket/compiled_plan.hpp), with no other rank, no open channel and nothing sent.
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
  // `plan`: what the scheme's scheduler makes, as predicted; all others outlive it.
  // FAILED_PRECONDITION where a run of so many ranks refuses for the room it needs, OUT_OF_MEMORY
  // where this machine does not give that much.
  static Result<std::unique_ptr<Programs>> make(const SchemeFile& file, const ModelProfile& profile,
                                                const Cluster& cluster, const Rehearsal& rehearsal,
                                                Plan plan);

  // Each program once, with the buckets that have it: its stages, one a line, what each of them
  // waits for, and as what its time counts.
  std::string text() const;
  // Bucket by bucket, with the words of the report of a set.
  Json json() const;

 private:
  Programs(const SchemeFile& file, const ModelProfile& profile, const Cluster& cluster);

  SetContext context_;
  std::array<Channel, 3> transports_, composites_;  // by level; for the groups alone
  CompiledPlan::Gradients gradients_;
  std::unique_ptr<CompiledPlan> compiled_;
};

}  // namespace penstock::command
