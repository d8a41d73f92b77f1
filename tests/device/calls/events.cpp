// Events: marks in streams.
#include <fmt/format.h>

#include "call.hpp"

namespace penstock::simulated {
namespace {

bool is_waited_for(const Machine& machine, uint64_t event) {
  for (const Stream* stream : machine.all_streams())
    for (const Operation& operation : stream->queue)
      if (operation.kind == Kind::kWaitEvent && operation.event == event) return true;
  return false;
}

}  // namespace

Event* find_event(Machine& machine, cudaEvent_t handle, const char* function) {
  const auto found = machine.events.find(id_of(handle));
  if (found != machine.events.end()) return &found->second;
  machine.journal.report(
      Misuse::kDeadHandle,
      fmt::format("{}: event {:#x} does not exist, or not any more", function, id_of(handle)));
  return nullptr;
}

}  // namespace penstock::simulated

using namespace penstock::simulated;

cudaError_t cudaEventCreate(cudaEvent_t* event) {
  return cudaEventCreateWithFlags(event, cudaEventDefault);
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  return call(Call::kEventCreate, [&](Machine& machine, Lock&) {
    if (event == nullptr || flags > (cudaEventBlockingSync | cudaEventDisableTiming))
      return cudaErrorInvalidValue;
    const uint64_t id = machine.new_id();
    machine.events.emplace(
        id, Event{.device = current_device(), .timed = (flags & cudaEventDisableTiming) == 0});
    *event = as_handle<cudaEvent_t>(id);
    return cudaSuccess;
  });
}

cudaError_t cudaEventDestroy(cudaEvent_t handle) {
  return call(Call::kEventDestroy, [&](Machine& machine, Lock&) {
    if (find_event(machine, handle, "cudaEventDestroy") == nullptr)
      return cudaErrorInvalidResourceHandle;
    if (is_waited_for(machine, id_of(handle)))
      machine.journal.report(
          Misuse::kEventDestroyedBusy,
          fmt::format("event {:#x} was destroyed while queued work waits for it", id_of(handle)));
    machine.events.erase(id_of(handle));
    return cudaSuccess;
  });
}

cudaError_t cudaEventRecord(cudaEvent_t handle, cudaStream_t stream_handle) {
  return call(Call::kEventRecord, [&](Machine& machine, Lock&) {
    Event* event = find_event(machine, handle, "cudaEventRecord");
    Stream* stream = find_stream(machine, stream_handle, "cudaEventRecord");
    if (stream == nullptr || event == nullptr || stream->device != event->device)
      return cudaErrorInvalidResourceHandle;
    if (stream->captured != nullptr) return cudaErrorStreamCaptureUnsupported;
    event->last = std::make_shared<Record>(Record{stream});
    event->fruitless = 0;
    Operation operation{.kind = Kind::kRecord};
    operation.record = event->last;
    machine.queue(*stream, std::move(operation));
    return cudaSuccess;
  });
}

cudaError_t cudaEventQuery(cudaEvent_t handle) {
  return call(Call::kEventQuery, [&](Machine& machine, Lock&) {
    Event* event = find_event(machine, handle, "cudaEventQuery");
    if (event == nullptr) return cudaErrorInvalidResourceHandle;
    const cudaError_t lost = machine.devices[event->device].lost;
    if (lost != cudaSuccess || event->last == nullptr || event->last->done) return lost;
    machine.answer(*event->last->stream, event->fruitless);
    return cudaErrorNotReady;
  });
}

cudaError_t cudaEventSynchronize(cudaEvent_t handle) {
  return call(Call::kEventWait, [&](Machine& machine, Lock& lock) {
    Event* event = find_event(machine, handle, "cudaEventSynchronize");
    if (event == nullptr) return cudaErrorInvalidResourceHandle;
    machine.journal.count_wait(&Waits::for_event);
    if (event->last == nullptr) return cudaSuccess;
    return machine.finish(lock, event->last);
  });
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  return call(Call::kEventElapsed, [&](Machine& machine, Lock&) {
    const Event* from = find_event(machine, begin, "cudaEventElapsedTime");
    const Event* to = find_event(machine, end, "cudaEventElapsedTime");
    if (from == nullptr || to == nullptr || from->device != to->device || !from->timed ||
        !to->timed || from->last == nullptr || to->last == nullptr)
      return cudaErrorInvalidResourceHandle;
    if (const cudaError_t lost = machine.devices[to->device].lost; lost != cudaSuccess) return lost;
    if (!from->last->done || !to->last->done) return cudaErrorNotReady;
    *milliseconds = static_cast<float>((to->last->at_us - from->last->at_us) * 1e-3);
    return cudaSuccess;
  });
}
