// Facts about all available plugins, for error messages that name a plugin that would work.
#pragma once

#include "core/control/activity.hpp"
#include "core/fit/rules.hpp"
#include "core/plugin/registry.hpp"

#include <functional>

namespace penstock {

// Facts about all plugins of each kind, each created with its default options under its own name.
class Offers {
 public:
  virtual ~Offers() = default;
  virtual std::vector<CompressorFacts> compressors() const = 0;
  virtual std::vector<MemoryFacts> memories() const = 0;
  virtual std::vector<CollectiveFacts> collectives() const = 0;
  virtual std::vector<SchedulerFacts> schedulers() const = 0;
};

// Offers the plugins of a registry, which must outlive the object. They are loaded only when a
// message is written. Compressors and memories plan a sample matrix. A plugin that cannot be
// loaded or planned with is not offered. `calls`: where the calls of plugins are noted. [control]
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

// The advice of a message that refuses a plugin or warns about it: `memory = "NAME" or "OTHER"`.
// The rules are tried with each offered plugin. The advice names at most two plugins with the
// fewest faults, the simplest first, if they have fewer faults than now. Otherwise it is "a memory
// that `does`". `is_meant` excludes plugins that pass the rules but do not serve this rule.
std::string other_compressor(const FitInput& input, const FitGroup& group, std::string_view does,
                             const std::function<bool(const CompressorFacts&)>& is_meant = nullptr);
std::string other_memory(const FitInput& input, const FitGroup& group, std::string_view does,
                         const std::function<bool(const MemoryFacts&)>& is_meant = nullptr);
std::string other_collective(const FitInput& input, std::string_view does);
// Like other_collective above, for one group of gradients.
std::string other_collective(const FitInput& input, const FitGroup& group, std::string_view does);
std::string other_device_transport(const FitInput& input, std::string_view does);
std::string other_scheduler(const FitInput& input, std::string_view does);

// `"NAME" or "OTHER"`: the first two names; empty if `names` is empty.
std::string alternatives(const std::vector<std::string>& names);

}  // namespace penstock
