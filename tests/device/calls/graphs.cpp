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

cudaError_t destroy(Machine& machine, std::map<uint64_t, Graph>& graphs, uint64_t id,
                    const char* function) {
  if (find_graph(machine, graphs, id, function) == nullptr) return cudaErrorInvalidValue;
  graphs.erase(id);
  return cudaSuccess;
}

}  // namespace
}  // namespace penstock::simulated

using namespace penstock::simulated;

cudaError_t cudaStreamIsCapturing(cudaStream_t handle, cudaStreamCaptureStatus* status) {
  return call(Call::kGraph, [&](Machine& machine, Lock&) {
    const Stream* stream = find_stream(machine, handle, "cudaStreamIsCapturing");
    if (stream == nullptr) return cudaErrorInvalidResourceHandle;
    *status =
        stream->captured != nullptr ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
    return cudaSuccess;
  });
}

cudaError_t cudaStreamBeginCapture(cudaStream_t handle, cudaStreamCaptureMode) {
  return call(Call::kGraph, [&](Machine& machine, Lock&) {
    Stream* stream = find_stream(machine, handle, "cudaStreamBeginCapture");
    if (stream == nullptr) return cudaErrorInvalidResourceHandle;
    if (stream->legacy) return cudaErrorStreamCaptureUnsupported;
    if (stream->captured != nullptr) return cudaErrorInvalidValue;
    stream->captured = std::make_unique<std::vector<Operation>>();
    ++this_thread_state().captures;
    return cudaSuccess;
  });
}

cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t* graph) {
  return call(Call::kGraph, [&](Machine& machine, Lock&) {
    Stream* stream = find_stream(machine, handle, "cudaStreamEndCapture");
    if (stream == nullptr) return cudaErrorInvalidResourceHandle;
    if (stream->captured == nullptr || !captures()) return cudaErrorStreamCaptureUnmatched;
    --this_thread_state().captures;
    const uint64_t id = machine.new_id();
    machine.graphs[id].work = std::move(*std::exchange(stream->captured, nullptr));
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
