// See device_memory.hpp.
#include "device_memory.hpp"

#include <kernels/message.hpp>

namespace penstock::collectives {

namespace {

uint64_t copying_patterns() {
  uint64_t patterns = sdk::transport_patterns();
  for (const uint32_t pattern : {PENSTOCK_ALL_REDUCE, PENSTOCK_REDUCE_SCATTER})
    patterns &= ~PENSTOCK_PATTERN_BIT(pattern);
  return patterns;
}

}  // namespace

sdk::Option DeviceMemory::option() {
  return sdk::choice_option("device_memory", "auto", {"auto", "yes", "no"})
      .summary(
          "as transport.device: whether the library accepts memory of CUDA devices; auto asks "
          "the library after the ranks have joined");
}

DeviceMemory::DeviceMemory(const sdk::Options& values)
    : says_(values.choice("device_memory") == "yes"  ? Says::yes
            : values.choice("device_memory") == "no" ? Says::no
                                                     : Says::ask) {}

bool DeviceMemory::is_taken() const {
  return says_ == Says::yes || (says_ == Says::ask && !is_refused_);
}

void DeviceMemory::describe(penstock_collective_traits& traits) const {
  if (!is_taken() || !PENSTOCK_HAS_FIELD(&traits, penstock_collective_traits, device_patterns))
    return;
  traits.device_types |= uint64_t(1) << PENSTOCK_DEVICE_CUDA;
  traits.device_patterns = copying_patterns();
  traits.flags |= PENSTOCK_COLLECTIVE_TAKES_FINISHED;
}

}  // namespace penstock::collectives
