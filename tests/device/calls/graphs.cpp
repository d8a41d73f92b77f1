// Captures of one stream, and graphs that queue them again.
#include <fmt/format.h>

#include <utility>

#include "call.hpp"

namespace penstock::simulated {
namespace {

Graph* find_graph(Machine& machine, std::map<uint64_t, Graph>& graphs, uint64_t id,
                  const char* function) {
  const auto found = graphs.find(id);
  if (found != graphs.end()) return &found->second;
  machine.journal.report(
      Misuse::kDeadHandle,
      fmt::format("{}: graph {:#x} does not exist, or not any more", function, id));
  return nullptr;
}

// Whether `capture` forbids unsafe calls to this thread.
bool forbids(const Capture& capture) {
  const cudaStreamCaptureMode own = this_thread_state().capture_mode;
  if (own == cudaStreamCaptureModeRelaxed) return false;
  if (capture.by == std::this_thread::get_id()) return capture.mode != cudaStreamCaptureModeRelaxed;
  return own == cudaStreamCaptureModeGlobal && capture.mode == cudaStreamCaptureModeGlobal;
}

cudaError_t destroy(Machine& machine, std::map<uint64_t, Graph>& graphs, uint64_t id,
                    const char* function) {
  if (find_graph(machine, graphs, id, function) == nullptr) return cudaErrorInvalidValue;
  graphs.erase(id);
  return cudaSuccess;
}

}  // namespace

bool is_unsafe_in_captures(Call kind) {
  switch (kind) {
    case Call::kAllocate:
    case Call::kFree:
    case Call::kHostAllocate:
    case Call::kHostFree:
    case Call::kStreamWait:
    case Call::kStreamQuery:
    case Call::kEventQuery:
    case Call::kEventWait:
    case Call::kDeviceWait:
      return true;
    default:
      return false;
  }
}

cudaError_t refusal_of_captures(Machine& machine) {
  cudaError_t error = cudaSuccess;
  for (auto& [id, stream] : machine.streams) {
    if (stream->captured == nullptr || !forbids(*stream->captured)) continue;
    stream->captured->spoiled = true;
    error = cudaErrorStreamCaptureUnsupported;
  }
  return error;
}

}  // namespace penstock::simulated

using namespace penstock::simulated;

cudaError_t cudaStreamIsCapturing(cudaStream_t handle, cudaStreamCaptureStatus* status) {
  return call(Call::kGraph, [&](Machine& machine, Lock&) {
    const Stream* stream = find_stream(machine, handle, "cudaStreamIsCapturing");
    if (stream == nullptr) return cudaErrorInvalidResourceHandle;
    *status = stream->captured == nullptr ? cudaStreamCaptureStatusNone
              : stream->captured->spoiled ? cudaStreamCaptureStatusInvalidated
                                          : cudaStreamCaptureStatusActive;
    return cudaSuccess;
  });
}

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  return call(
      Call::kGraph,
      [&](Machine&, Lock&) {
        std::swap(*mode, this_thread_state().capture_mode);
        return cudaSuccess;
      },
      Needs::kNothing);
}

cudaError_t cudaStreamBeginCapture(cudaStream_t handle, cudaStreamCaptureMode mode) {
  return call(Call::kGraph, [&](Machine& machine, Lock&) {
    Stream* stream = find_stream(machine, handle, "cudaStreamBeginCapture");
    if (stream == nullptr) return cudaErrorInvalidResourceHandle;
    if (stream->legacy) return cudaErrorStreamCaptureUnsupported;
    if (stream->captured != nullptr) return cudaErrorInvalidValue;
    stream->captured =
        std::make_unique<Capture>(Capture{.mode = mode, .by = std::this_thread::get_id()});
    return cudaSuccess;
  });
}

cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t* graph) {
  return call(Call::kGraph, [&](Machine& machine, Lock&) {
    Stream* stream = find_stream(machine, handle, "cudaStreamEndCapture");
    if (stream == nullptr) return cudaErrorInvalidResourceHandle;
    if (stream->captured == nullptr || stream->captured->by != std::this_thread::get_id())
      return cudaErrorStreamCaptureUnmatched;
    const std::unique_ptr<Capture> ended = std::exchange(stream->captured, nullptr);
    if (ended->spoiled) return cudaErrorStreamCaptureInvalidated;
    const uint64_t id = machine.new_id();
    machine.graphs[id].work = std::move(ended->work);
    *graph = as_handle<cudaGraph_t>(id);
    return cudaSuccess;
  });
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* ready, cudaGraph_t graph, unsigned long long) {
  return call(Call::kGraph, [&](Machine& machine, Lock&) {
    const Graph* found = find_graph(machine, machine.graphs, id_of(graph), "cudaGraphInstantiate");
    if (found == nullptr) return cudaErrorInvalidValue;
    const uint64_t id = machine.new_id();
    machine.ready_graphs[id] = *found;
    *ready = as_handle<cudaGraphExec_t>(id);
    return cudaSuccess;
  });
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t handle) {
  return call(Call::kGraph, [&](Machine& machine, Lock&) {
    Stream* stream = find_stream(machine, handle, "cudaGraphLaunch");
    const Graph* found = find_graph(machine, machine.ready_graphs, id_of(graph), "cudaGraphLaunch");
    if (stream == nullptr) return cudaErrorInvalidResourceHandle;
    if (found == nullptr) return cudaErrorInvalidValue;
    for (const Operation& operation : found->work) machine.queue(*stream, operation);
    return cudaSuccess;
  });
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) {
  return call(Call::kGraph, [&](Machine& machine, Lock&) {
    return destroy(machine, machine.ready_graphs, id_of(graph), "cudaGraphExecDestroy");
  });
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  return call(Call::kGraph, [&](Machine& machine, Lock&) {
    return destroy(machine, machine.graphs, id_of(graph), "cudaGraphDestroy");
  });
}
