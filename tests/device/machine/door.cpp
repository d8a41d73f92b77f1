// The functions of simulated.hpp.
#include <fmt/format.h>

#include "machine.hpp"

namespace penstock::simulated {
namespace {

// The machine, locked as long as the object lives.
struct Locked {
  Machine& all = machine();
  Lock lock{all.mutex};
  Machine* operator->() const { return &all; }
};

void add(Waits& sum, const Waits& more) {
  for (uint64_t Waits::*kind :
       {&Waits::for_stream, &Waits::for_event, &Waits::for_device, &Waits::for_copy,
        &Waits::for_free, &Waits::for_pageable_copy, &Waits::for_load})
    sum.*kind += more.*kind;
}

}  // namespace

void reset(const Settings& settings) {
  Locked()->reset(settings);
}

void fail_call(Call call, uint64_t nth, int32_t error) {
  Locked()->failing_calls.add(call, nth, error);
}
void fail_work(Call kind, uint64_t nth, int32_t error) {
  Locked()->failing_work.add(kind, nth, error);
}
void lose_device(int device, int32_t error) {
  const Locked machine;
  machine->devices.at(device).lost = static_cast<cudaError_t>(error);
  machine->wake();
}
void leave_memory(int device, uint64_t bytes) {
  const Locked machine;
  Device& found = machine->devices.at(device);
  found.memory_bytes = found.held_bytes + bytes;
}

std::vector<Report> reports() {
  return Locked()->journal.reports();
}

std::vector<std::string> leaks() {
  const Locked machine;
  std::vector<std::string> found;
  for (const auto& [page, allocation] : machine->memory.live())
    found.push_back(machine->memory.describe(allocation->begin));
  for (const auto& [id, stream] : machine->streams)
    if (!stream->destroyed)
      found.push_back(fmt::format("stream {:#x} of device {}", id, stream->device));
  for (const auto& [id, event] : machine->events)
    found.push_back(fmt::format("event {:#x} of device {}", id, event.device));
  for (const auto* graphs : {&machine->graphs, &machine->ready_graphs})
    for (const auto& [id, graph] : *graphs) found.push_back(fmt::format("graph {:#x}", id));
  return found;
}

uint64_t calls(Call call) {
  return Locked()->journal.calls(call);
}
uint64_t calls_of_this_thread(Call call) {
  return Locked()->journal.calls_of_this_thread(call);
}
uint64_t held_bytes(int device) {
  return Locked()->devices.at(device).held_bytes;
}

std::set<int> contexts() {
  return Locked()->journal.contexts();
}

Copied copied() {
  return Locked()->journal.copied();
}

Waits waits() {
  Waits sum;
  for (const auto& [thread, waits] : waits_by_thread()) add(sum, waits);
  return sum;
}
Waits waits_of_this_thread() {
  const std::map<std::thread::id, Waits> all = waits_by_thread();
  const auto found = all.find(std::this_thread::get_id());
  return found == all.end() ? Waits{} : found->second;
}
std::map<std::thread::id, Waits> waits_by_thread() {
  return Locked()->journal.waits();
}

uint64_t queued() {
  const Locked machine;
  uint64_t sum = 0;
  for (const Stream* stream : machine->all_streams()) sum += stream->queue.size();
  return sum;
}

}  // namespace penstock::simulated
