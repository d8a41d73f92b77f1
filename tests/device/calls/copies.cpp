// Copies and fills. The call checks both ends, and the work checks them again. Memory of a device
// is freed only after all work of the device, so the second check can only find freed memory of
// another device.
#include <fmt/format.h>

#include <cstring>
#include <memory>
#include <vector>

#include "call.hpp"

namespace penstock::simulated {
namespace {

struct End {
  uintptr_t address;
  Allocation* allocation;  // null: pageable memory of the host
  bool on_device() const { return allocation != nullptr && allocation->device != kHost; }
};

enum class Side { kHost, kDevice, kEither };

// Null, after a report, if the memory is not as the call says.
std::optional<End> look(Machine& machine, const void* pointer, uint64_t bytes, Side side,
                        const char* which) {
  const auto address = reinterpret_cast<uintptr_t>(pointer);
  const End end{address, machine.memory.find(address)};
  const bool ours = machine.memory.reserved(address);
  const bool inside = end.allocation != nullptr && end.allocation->holds(address, bytes);
  const bool right_side = side == Side::kEither || (side == Side::kDevice) == end.on_device();
  if ((!ours || inside) && right_side) return end;
  const std::string what = ours ? machine.memory.describe(address) : "pageable memory of the host";
  machine.journal.report(
      Misuse::kWrongPointer,
      fmt::format("the {} of {} bytes begins at {}, expected {}", which, bytes, what,
                  side == Side::kDevice ? "as many bytes of a device"
                  : side == Side::kHost ? "as many bytes of the host"
                                        : "as many bytes of an allocation"));
  return std::nullopt;
}

struct Copy {
  End target, source;
  uint64_t bytes;
};

std::optional<Copy> look(Machine& machine, void* target, const void* source, uint64_t bytes,
                         cudaMemcpyKind kind) {
  const auto side = [kind](bool is_target) {
    if (kind == cudaMemcpyDefault) return Side::kEither;
    const bool device = kind == cudaMemcpyDeviceToDevice ||
                        kind == (is_target ? cudaMemcpyHostToDevice : cudaMemcpyDeviceToHost);
    return device ? Side::kDevice : Side::kHost;
  };
  const std::optional<End> to = look(machine, target, bytes, side(true), "target of a copy");
  const std::optional<End> from = look(machine, source, bytes, side(false), "source of a copy");
  if (!to || !from) return std::nullopt;
  return Copy{*to, *from, bytes};
}

// Opens the allocation of the address when the work runs. If the copy needs other memory, it
// faults, and the handler reports it.
void open(uintptr_t address) {
  if (Allocation* now = machine().memory.find(address); now != nullptr) machine().memory.open(*now);
}

HostRange pinned_range(const Copy& copy) {
  for (const End* end : {&copy.target, &copy.source})
    if (end->allocation != nullptr && !end->on_device()) return {end->address, copy.bytes};
  return {};
}

void count(Machine& machine, const Copy& copy) {
  if (copy.target.on_device() && copy.source.on_device())
    machine.journal.count_copy(&Copied::on_device, copy.bytes);
  else if (copy.target.on_device())
    machine.journal.count_copy(&Copied::to_device, copy.bytes);
  else if (copy.source.on_device())
    machine.journal.count_copy(&Copied::to_host, copy.bytes);
}

// As in the real runtime, the call copies a pageable source into memory of the runtime.
Operation make(const Copy& copy) {
  Operation operation{.kind = Kind::kCopy};
  operation.host = pinned_range(copy);
  const auto staged = std::make_shared<std::vector<char>>();
  if (copy.source.allocation == nullptr) {
    const auto* begin = reinterpret_cast<const char*>(copy.source.address);
    staged->assign(begin, begin + copy.bytes);
  }
  operation.run = [to = copy.target.address, from = copy.source.address, bytes = copy.bytes,
                   pageable = copy.source.allocation == nullptr, staged] {
    open(to);
    open(from);
    std::memmove(reinterpret_cast<void*>(to),
                 pageable ? staged->data() : reinterpret_cast<const void*>(from), bytes);
  };
  return operation;
}

cudaError_t fill(Machine& machine, void* target, int value, uint64_t bytes, Stream& stream) {
  if (bytes == 0) return cudaSuccess;
  const std::optional<End> end = look(machine, target, bytes, Side::kEither, "target of a fill");
  if (!end || end->allocation == nullptr) return cudaErrorInvalidValue;
  Operation operation{.kind = Kind::kFill};
  if (!end->on_device()) operation.host = {end->address, bytes};
  operation.run = [address = end->address, value, bytes] {
    open(address);
    std::memset(reinterpret_cast<void*>(address), value, bytes);
  };
  machine.queue(stream, std::move(operation));
  return cudaSuccess;
}

}  // namespace
}  // namespace penstock::simulated

using namespace penstock::simulated;

cudaError_t cudaMemcpy(void* target, const void* source, std::size_t bytes, cudaMemcpyKind kind) {
  return call(Call::kCopy, [&](Machine& machine, Lock& lock) {
    if (const cudaError_t error = refusal_of_captures(machine); error != cudaSuccess) return error;
    if (bytes == 0) return cudaSuccess;
    const std::optional<Copy> copy = look(machine, target, source, bytes, kind);
    if (!copy) return cudaErrorInvalidValue;
    machine.journal.count_wait(&Waits::for_copy);
    count(machine, *copy);
    Stream& stream = *find_stream(machine, nullptr, "cudaMemcpy");
    machine.queue(stream, make(*copy));
    return machine.finish(lock, stream);
  });
}

cudaError_t cudaMemcpyAsync(void* target, const void* source, std::size_t bytes,
                            cudaMemcpyKind kind, cudaStream_t handle) {
  return call(Call::kCopy, [&](Machine& machine, Lock& lock) {
    Stream* stream = find_stream(machine, handle, "cudaMemcpyAsync");
    if (stream == nullptr) return cudaErrorInvalidResourceHandle;
    if (bytes == 0) return cudaSuccess;
    const std::optional<Copy> copy = look(machine, target, source, bytes, kind);
    if (!copy) return cudaErrorInvalidValue;
    const bool to_pageable = copy->target.allocation == nullptr;
    const bool pageable = to_pageable || copy->source.allocation == nullptr;
    if (pageable && stream->captured != nullptr) return cudaErrorStreamCaptureUnsupported;
    if (pageable) machine.journal.count_wait(&Waits::for_pageable_copy);
    count(machine, *copy);
    machine.queue(*stream, make(*copy));
    // The real runtime returns from these calls after the bytes have arrived.
    return to_pageable ? machine.finish(lock, *stream) : cudaSuccess;
  });
}

cudaError_t cudaMemset(void* target, int value, std::size_t bytes) {
  return cudaMemsetAsync(target, value, bytes, nullptr);
}
cudaError_t cudaMemsetAsync(void* target, int value, std::size_t bytes, cudaStream_t handle) {
  return call(Call::kFill, [&](Machine& machine, Lock&) {
    Stream* stream = find_stream(machine, handle, "cudaMemsetAsync");
    if (stream == nullptr) return cudaErrorInvalidResourceHandle;
    return fill(machine, target, value, bytes, *stream);
  });
}
