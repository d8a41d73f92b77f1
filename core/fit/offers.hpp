// What the plugins that are there say of themselves, for messages that name one that would do.
#pragma once

#include "core/control/activity.hpp"
#include "core/fit/rules.hpp"
#include "core/plugin/registry.hpp"

#include <functional>

namespace penstock {

// Facts of all plugins of a kind, each with its default options and named as the plugin is.
class Offers {
 public:
  virtual ~Offers() = default;
  virtual std::vector<CompressorFacts> compressors() const = 0;
  virtual std::vector<MemoryFacts> memories() const = 0;
  virtual std::vector<CollectiveFacts> collectives() const = 0;
  virtual std::vector<SchedulerFacts> schedulers() const = 0;
};

// Offers the plugins of a registry, which must outlive it. They are loaded only when a message is
// written; compressors and memories are asked about a sample matrix. A plugin that cannot be loaded
// or asked offers nothing. `calls`: where the calls of plugins are noted. [control]
class RegistryOffers : public Offers {
 public:
  explicit RegistryOffers(Registry& registry, CallSlot* calls = nullptr)
      : registry_(registry), calls_(calls) {}
  std::vector<CompressorFacts> compressors() const override;
  std::vector<MemoryFacts> memories() const override;
  std::vector<CollectiveFacts> collectives() const override;
  std::vector<SchedulerFacts> schedulers() const override;

 private:
  Registry& registry_;
  CallSlot* const calls_;
};

// What a message says to set instead of what a rule refuses or warns of: `memory = "NAME" or
// "OTHER"`. It names at most two of the plugins with which the rules find the fewest faults, if
// these are fewer than now, the plainest first; where there is none, "a memory that `does`".
// `is_meant` leaves out what would pass and is not what the rule is about.
std::string other_compressor(const FitInput& input, const FitGroup& group, std::string_view does,
                             const std::function<bool(const CompressorFacts&)>& is_meant = nullptr);
std::string other_memory(const FitInput& input, const FitGroup& group, std::string_view does,
                         const std::function<bool(const MemoryFacts&)>& is_meant = nullptr);
std::string other_collective(const FitInput& input, std::string_view does);
// The same for one group of gradients.
std::string other_collective(const FitInput& input, const FitGroup& group, std::string_view does);
std::string other_device_transport(const FitInput& input, std::string_view does);
std::string other_scheduler(const FitInput& input, std::string_view does);

// `"NAME" or "OTHER"`: the first two; empty for none.
std::string alternatives(const std::vector<std::string>& names);

}  // namespace penstock
