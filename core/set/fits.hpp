// Whether what a configuration says fits a set: the fittings of its stages, and what is checked of
// them against transports and frontend.
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
  // All outlive it.
  Fits(const SetContext& set, const Services& services, const Declaration& declaration,
       const SetChannels& channels)
      : set_(set), services_(services), declaration_(declaration), channels_(channels) {}

  // What the configuration makes of the gradients from step `at` on.
  Result<std::shared_ptr<const Fitting>> fit(uint64_t at) const;
  Result<FitAdvice> check(const Fitting& fitting) const;
  // All stages before the first step: what does not fit must not show in the middle of a run.
  Result<std::vector<SchemeStage>> all_stages() const;
  // What each of them sends.
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
