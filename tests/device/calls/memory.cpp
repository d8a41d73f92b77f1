// Memory of devices, and pinned memory of the host.
#include <fmt/format.h>

#include "call.hpp"

namespace penstock::simulated {
namespace {

uintptr_t address_of(const void* pointer) {
  return reinterpret_cast<uintptr_t>(pointer);
}

// The allocation that begins at `pointer`. Null, after a report, if there is none.
const Allocation* find_whole(Machine& machine, const void* pointer, bool host,
                             const char* function) {
  const Allocation* found = machine.memory.find(pointer);
  const bool whole = found != nullptr && found->begin == address_of(pointer);
  if (whole && (found->device == kHost) == host) return found;
  const std::string what = machine.memory.reserved(address_of(pointer))
                               ? machine.memory.describe(address_of(pointer))
                               : std::string("memory that no call of the device gave");
  machine.journal.report(Misuse::kDeadHandle, fmt::format("{}: {}", function, what));
  return nullptr;
}

void release(Machine& machine, const Allocation& allocation) {
  if (allocation.device != kHost) machine.devices[allocation.device].held_bytes -= allocation.bytes;
  if (std::optional<std::string> spoiled = machine.memory.release(allocation))
    machine.journal.report(Misuse::kMemoryWrittenAround, *std::move(spoiled));
}

bool is_used(const Machine& machine, const Allocation& allocation) {
  for (const Stream* stream : machine.all_streams())
    for (const Operation& operation : stream->queue)
      if (operation.host.bytes > 0 && allocation.holds(operation.host.begin, 0)) return true;
  return false;
}

}  // namespace
}  // namespace penstock::simulated

using namespace penstock::simulated;

cudaError_t cudaMalloc(void** memory, std::size_t bytes) {
  return call(Call::kAllocate, [&](Machine& machine, Lock&) {
    if (memory == nullptr) return cudaErrorInvalidValue;
    *memory = nullptr;
    if (bytes == 0) return cudaSuccess;
    const int current = current_device();
    Device& device = machine.devices[current];
    if (bytes > device.memory_bytes - std::min(device.held_bytes, device.memory_bytes))
      return cudaErrorMemoryAllocation;
    const Allocation* made =
        machine.memory.allocate(current, bytes, machine.settings.open_to_hosts);
    if (made == nullptr) return cudaErrorMemoryAllocation;
    device.held_bytes += bytes;
    *memory = reinterpret_cast<void*>(made->begin);
    return cudaSuccess;
  });
}

// As in the real runtime, all work of the device ends first.
cudaError_t cudaFree(void* memory) {
  return call(Call::kFree, [&](Machine& machine, Lock& lock) {
    if (memory == nullptr) return cudaSuccess;
    const Allocation* found = find_whole(machine, memory, false, "cudaFree");
    if (found == nullptr) return cudaErrorInvalidValue;
    machine.journal.count_wait(&Waits::for_free);
    if (const cudaError_t error = machine.finish_device(lock, found->device); error != cudaSuccess)
      return error;
    release(machine, *found);
    return cudaSuccess;
  });
}

cudaError_t cudaHostAlloc(void** memory, std::size_t bytes, unsigned flags) {
  return call(Call::kHostAllocate, [&](Machine& machine, Lock&) {
    if (memory == nullptr || flags > cudaHostAllocPortable) return cudaErrorInvalidValue;
    *memory = nullptr;
    if (bytes == 0) return cudaSuccess;
    const Allocation* made = machine.memory.allocate(kHost, bytes, true);
    if (made == nullptr) return cudaErrorMemoryAllocation;
    *memory = reinterpret_cast<void*>(made->begin);
    return cudaSuccess;
  });
}

// First the work that uses the memory ends, so that the misuse has no effect beyond the report.
cudaError_t cudaFreeHost(void* memory) {
  return call(Call::kHostFree, [&](Machine& machine, Lock& lock) {
    if (memory == nullptr) return cudaSuccess;
    const Allocation* found = find_whole(machine, memory, true, "cudaFreeHost");
    if (found == nullptr) return cudaErrorInvalidValue;
    machine.journal.count_wait(&Waits::for_free);
    if (is_used(machine, *found)) {
      machine.journal.report(Misuse::kHostMemoryFreedBusy,
                             fmt::format("pinned memory was freed while a queued copy uses {}",
                                         machine.memory.describe(found->begin)));
      for (std::size_t d = 0; d < machine.devices.size(); ++d)
        (void)machine.finish_device(lock, static_cast<int>(d));
    }
    release(machine, *found);
    return cudaSuccess;
  });
}

cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  return call(Call::kProperties, [&](Machine& machine, Lock&) {
    const Device& device = machine.devices[current_device()];
    *total = device.memory_bytes;
    *free = device.memory_bytes - std::min(device.held_bytes, device.memory_bytes);
    return cudaSuccess;
  });
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* pointer) {
  return call(Call::kProperties, [&](Machine& machine, Lock&) {
    *attributes = {cudaMemoryTypeUnregistered, -2, nullptr, const_cast<void*>(pointer)};
    const Allocation* found = machine.memory.find(pointer);
    if (found == nullptr) return cudaSuccess;
    const bool host = found->device == kHost;
    attributes->type = host ? cudaMemoryTypeHost : cudaMemoryTypeDevice;
    attributes->device = host ? current_device() : found->device;
    attributes->devicePointer = const_cast<void*>(pointer);
    if (!host) attributes->hostPointer = nullptr;
    return cudaSuccess;
  });
}
