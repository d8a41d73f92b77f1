// Streams, and work without memory operations: kernels, functions of the host.
#include <cuda_runtime.h>
#include <fmt/format.h>

#include "../machine/fibers.hpp"
#include "call.hpp"

namespace penstock::simulated {
namespace {

const cudaStream_t kLegacyHandle = reinterpret_cast<cudaStream_t>(1);

}  // namespace

Stream* find_stream(Machine& machine, cudaStream_t handle, const char* function) {
  if (handle == nullptr || handle == kLegacyHandle)
    return machine.devices[current_device()].legacy.get();
  const auto found = machine.streams.find(id_of(handle));
  if (found != machine.streams.end() && !found->second->destroyed) return found->second.get();
  machine.journal.report(
      Misuse::kDeadHandle,
      fmt::format("{}: stream {:#x} does not exist, or not any more", function, id_of(handle)));
  return nullptr;
}

namespace {

// As in the real runtime, which allocates memory of the device for the kernel.
cudaError_t load(Machine& machine, Lock& lock, const void* kernel, uint64_t Waits::*counted) {
  if (!machine.load(current_device(), kernel)) return cudaSuccess;
  if (counted != nullptr) machine.journal.count_wait(counted);
  return machine.finish_device(lock, current_device());
}

}  // namespace

cudaError_t launch(const cudaLaunchConfig_t& config, const void* kernel,
                   std::function<void()> thread) {
  return call(Call::kLaunch, [&](Machine& machine, Lock& lock) {
    Stream* stream = find_stream(machine, config.stream, "a launch");
    if (stream == nullptr || stream->device != current_device())
      return cudaErrorInvalidResourceHandle;
    if (config.dynamicSmemBytes != 0) return cudaErrorNotSupported;
    const dim3 grid = config.gridDim, block = config.blockDim;
    if (!grid_is_valid(grid, block)) return cudaErrorInvalidConfiguration;
    if (const cudaError_t error = load(machine, lock, kernel, &Waits::for_load);
        error != cudaSuccess)
      return error;
    Operation operation{.kind = Kind::kLaunch};
    operation.run = [grid, block, thread = std::move(thread)] { run_grid(grid, block, thread); };
    machine.queue(*stream, std::move(operation));
    return cudaSuccess;
  });
}

}  // namespace penstock::simulated

using namespace penstock::simulated;

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* kernel) {
  return call(Call::kLoad, [&](Machine& machine, Lock& lock) {
    if (attributes == nullptr || kernel == nullptr) return cudaErrorInvalidValue;
    return load(machine, lock, kernel, nullptr);
  });
}

cudaError_t cudaLaunchHostFunc(cudaStream_t handle, cudaHostFn_t function, void* data) {
  return call(Call::kHostFunction, [&](Machine& machine, Lock&) {
    Stream* stream = find_stream(machine, handle, "cudaLaunchHostFunc");
    if (stream == nullptr) return cudaErrorInvalidResourceHandle;
    if (function == nullptr) return cudaErrorInvalidValue;
    Operation operation{.kind = Kind::kHostFunction};
    operation.run = [function, data] { function(data); };
    machine.queue(*stream, std::move(operation));
    return cudaSuccess;
  });
}

cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  return cudaStreamCreateWithPriority(stream, cudaStreamDefault, 0);
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return cudaStreamCreateWithPriority(stream, flags, 0);
}
// The next stream is random, so a program must not rely on a priority.
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int) {
  return call(Call::kStreamCreate, [&](Machine& machine, Lock&) {
    if (stream == nullptr || flags > cudaStreamNonBlocking) return cudaErrorInvalidValue;
    auto made = std::make_unique<Stream>();
    made->id = machine.new_id();
    made->device = current_device();
    made->with_legacy = flags != cudaStreamNonBlocking;
    *stream = as_handle<cudaStream_t>(made->id);
    machine.streams.emplace(made->id, std::move(made));
    return cudaSuccess;
  });
}

cudaError_t cudaStreamDestroy(cudaStream_t handle) {
  return call(Call::kStreamDestroy, [&](Machine& machine, Lock&) {
    Stream* stream = find_stream(machine, handle, "cudaStreamDestroy");
    if (stream == nullptr || stream->legacy) return cudaErrorInvalidResourceHandle;
    if (stream->queue.empty()) {
      machine.streams.erase(stream->id);
      return cudaSuccess;
    }
    stream->destroyed = true;
    machine.journal.report(Misuse::kStreamDestroyedBusy,
                           fmt::format("stream {:#x} was destroyed with {} pieces of work queued",
                                       stream->id, stream->queue.size()));
    return cudaSuccess;
  });
}

cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
  return call(Call::kStreamWait, [&](Machine& machine, Lock& lock) {
    Stream* stream = find_stream(machine, handle, "cudaStreamSynchronize");
    if (stream == nullptr) return cudaErrorInvalidResourceHandle;
    if (stream->captured != nullptr) return cudaErrorStreamCaptureUnsupported;
    machine.journal.count_wait(&Waits::for_stream);
    return machine.finish(lock, *stream);
  });
}

cudaError_t cudaStreamQuery(cudaStream_t handle) {
  return call(Call::kStreamQuery, [&](Machine& machine, Lock&) {
    Stream* stream = find_stream(machine, handle, "cudaStreamQuery");
    if (stream == nullptr) return cudaErrorInvalidResourceHandle;
    if (stream->captured != nullptr) return cudaErrorStreamCaptureUnsupported;
    const cudaError_t lost = machine.devices[stream->device].lost;
    if (lost != cudaSuccess || stream->queue.empty()) return lost;
    machine.answer(*stream, stream->fruitless);
    return cudaErrorNotReady;
  });
}

cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t event_handle, unsigned flags) {
  return call(Call::kStreamWaitEvent, [&](Machine& machine, Lock&) {
    Stream* stream = find_stream(machine, handle, "cudaStreamWaitEvent");
    Event* event = find_event(machine, event_handle, "cudaStreamWaitEvent");
    if (stream == nullptr || event == nullptr) return cudaErrorInvalidResourceHandle;
    if (flags != 0) return cudaErrorInvalidValue;
    if (stream->captured != nullptr) return cudaErrorStreamCaptureUnsupported;
    if (event->last == nullptr) {
      machine.journal.report(
          Misuse::kWaitForNothing,
          fmt::format("stream {:#x} waits for event {:#x}, which was never recorded", stream->id,
                      id_of(event_handle)));
      return cudaSuccess;
    }
    Operation operation{.kind = Kind::kWaitEvent};
    operation.record = event->last;
    operation.event = id_of(event_handle);
    machine.queue(*stream, std::move(operation));
    return cudaSuccess;
  });
}
