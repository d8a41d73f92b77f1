// Contexts, by the driver's own calls. A thread has at most one current context. A device has one
// context per process, the primary context.
#include <string_view>

#include "call.hpp"

namespace penstock::simulated {
namespace {

// A context is a number, like every handle: the device's number plus one.
void* handle_of(int device) {
  return device < 0 ? nullptr : as_handle<void*>(static_cast<uint64_t>(device) + 1);
}

cudaError_t without_device(const Machine& machine) {
  if (machine.settings.driver != Driver::kPresent) return cudaErrorInsufficientDriver;
  return machine.devices.empty() ? cudaErrorNoDevice : cudaSuccess;
}

int32_t get_current(void** context) {
  return call(
      Call::kCurrent,
      [&](Machine& machine, Lock&) {
        *context = handle_of(this_thread_state().context);
        return without_device(machine);
      },
      Needs::kNothing);
}

int32_t set_current(void* context) {
  return call(
      Call::kCurrent,
      [&](Machine& machine, Lock&) {
        if (const cudaError_t none = without_device(machine); none != cudaSuccess) return none;
        const int device = static_cast<int>(id_of(context)) - 1;
        if (device >= static_cast<int>(machine.devices.size())) return cudaErrorInvalidDevice;
        this_thread_state().context = device;
        if (device >= 0) machine.journal.note_context(device);
        return device < 0 ? cudaSuccess : machine.devices[device].lost;
      },
      Needs::kNothing);
}

int32_t retain_primary(void** context, int device) {
  return call(
      Call::kCurrent,
      [&](Machine& machine, Lock&) {
        if (const cudaError_t none = without_device(machine); none != cudaSuccess) return none;
        if (device < 0 || device >= static_cast<int>(machine.devices.size()))
          return cudaErrorInvalidDevice;
        machine.journal.note_context(device);
        *context = handle_of(device);
        return machine.devices[device].lost;
      },
      Needs::kNothing);
}

}  // namespace
}  // namespace penstock::simulated

using namespace penstock::simulated;

cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void** function, unsigned,
                                             unsigned long long,
                                             cudaDriverEntryPointQueryResult* status) {
  const std::string_view name(symbol);
  *function = name == "cuCtxGetCurrent"            ? reinterpret_cast<void*>(get_current)
              : name == "cuCtxSetCurrent"          ? reinterpret_cast<void*>(set_current)
              : name == "cuDevicePrimaryCtxRetain" ? reinterpret_cast<void*>(retain_primary)
                                                   : nullptr;
  if (status != nullptr)
    *status =
        *function != nullptr ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
  return cudaSuccess;
}
