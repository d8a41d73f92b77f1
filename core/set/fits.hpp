// Checks whether a configuration fits a set: binds the scheme of each stage to the gradients, and
// checks the bound scheme against transports and frontend.
#pragma once

#include "core/fit/residence.hpp"
#include "core/fit/rules.hpp"
#include "core/set/channels.hpp"
#include "core/set/declaration.hpp"

#include <memory>
#include <vector>

namespace penstock {

// All functions are [control].
class Fits {
 public:
  // The arguments must outlive the object.
  Fits(const SetContext& set, const Services& services, const Declaration& declaration,
       const SetChannels& channels)
      : set_(set), services_(services), declaration_(declaration), channels_(channels) {}

  // Binds the scheme that is in force from step `at` on to the gradients.
  Result<std::shared_ptr<const BoundScheme>> fit(uint64_t at) const;
  Result<FitAdvice> check(const BoundScheme& bound_scheme) const;
  // Binds and checks all stages before the first step, so that a misfit does not show in the
  // middle of a run.
  Result<std::vector<SchemeStage>> all_stages() const;
  // The planned traffic of each stage.
  std::vector<StageTraffic> traffic_of(const std::vector<SchemeStage>& stages) const;

 private:
  const SetContext& set_;
  const Services& services_;
  const Declaration& declaration_;
  const SetChannels& channels_;
};

// Logs the warnings on rank 0, each once in a run.
void warn(const FitAdvice& advice, const SetContext& set, Log& log);

}  // namespace penstock
