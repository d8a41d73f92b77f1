// The state of a simulated machine: work, streams, events, graphs, devices.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "../simulated.hpp"

namespace penstock::simulated {

struct Stream;

// One cudaEventRecord. Not done: its stream still has it queued.
struct Record {
  Stream* stream;
  bool done = false;
  double at_us = 0;  // its stream's clock, once done
};

// Work of a rendezvous of several streams (NCCL): all must have come to it before it can run.
class Rendezvous {
 public:
  virtual ~Rendezvous() = default;
  virtual bool complete() = 0;
  // Every rank has queued its part, so that only other work can hold it up.
  virtual bool all_queued() = 0;
  // Of the parts that are queued, this one among them.
  virtual std::vector<Stream*> streams() = 0;
};

// Memory that the host may free, and that queued work uses.
struct HostRange {
  uintptr_t begin = 0;
  uint64_t bytes = 0;
};

enum class Kind { kLaunch, kCopy, kFill, kHostFunction, kRecord, kWaitEvent, kRendezvous };

struct Operation {
  Kind kind;
  uint64_t order = 0;                // of all work queued in the process
  std::function<void()> run{};       // kLaunch, kCopy, kFill, kHostFunction, kRendezvous
  std::shared_ptr<Record> record{};  // made by kRecord, waited for by kWaitEvent
  uint64_t event = 0;                // whose record kWaitEvent waits for
  HostRange host{};                  // of a copy
  std::shared_ptr<Rendezvous> rendezvous{};
};

// Of one stream.
struct Capture {
  std::vector<Operation> work{};  // goes into the graph
  cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
  std::thread::id by{};
  bool spoiled = false;  // by a call that must not be made meanwhile
};

struct Stream {
  uint64_t id;
  int device;
  bool legacy = false;      // the default stream of its device
  bool with_legacy = true;  // keeps order with it
  bool destroyed = false;   // goes when its work is done
  bool busy = false;        // its first operation runs on the thread of host functions
  uint64_t fruitless = 0;   // queries since this was made
  double clock_us = 0;      // simulated duration of its work so far
  std::deque<Operation> queue;
  std::unique_ptr<Capture> captured;  // null: it is not
};

struct Event {
  int device;
  bool timed = false;
  std::shared_ptr<Record> last{};  // null: never recorded
  uint64_t fruitless = 0;          // queries since it was recorded
};

struct Graph {
  std::vector<Operation> work;
};

struct Device {
  std::unique_ptr<Stream> legacy;
  cudaError_t lost = cudaSuccess;
  uint64_t memory_bytes;
  uint64_t held_bytes = 0;
};

}  // namespace penstock::simulated
