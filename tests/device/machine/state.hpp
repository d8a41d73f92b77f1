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

// One cudaEventRecord. If not done, it is still queued on its stream.
struct Record {
  Stream* stream;
  bool done = false;
  double at_us = 0;  // clock of its stream when it was done
};

// Work of a rendezvous of several streams (NCCL). It runs only after every stream has reached it.
class Rendezvous {
 public:
  virtual ~Rendezvous() = default;
  virtual bool complete() = 0;
  // Every rank has queued its part, so only other work can delay it.
  virtual bool all_queued() = 0;
  // The streams of the queued parts, including this part.
  virtual std::vector<Stream*> streams() = 0;
};

// Memory that the host may free while queued work uses it.
struct HostRange {
  uintptr_t begin = 0;
  uint64_t bytes = 0;
};

enum class Kind { kLaunch, kCopy, kFill, kHostFunction, kRecord, kWaitEvent, kRendezvous };

struct Operation {
  Kind kind;
  uint64_t order = 0;                // position among all queued work of the process
  std::function<void()> run{};       // kLaunch, kCopy, kFill, kHostFunction, kRendezvous
  std::shared_ptr<Record> record{};  // made by kRecord, awaited by kWaitEvent
  uint64_t event = 0;                // kWaitEvent waits for its record
  HostRange host{};                  // of a copy
  std::shared_ptr<Rendezvous> rendezvous{};
};

// The capture of a stream.
struct Capture {
  std::vector<Operation> work{};  // goes into the graph
  cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
  std::thread::id by{};
  bool spoiled = false;  // by a call that is forbidden in a capture
};

struct Stream {
  uint64_t id;
  int device;
  bool legacy = false;      // the default stream of its device
  bool with_legacy = true;  // ordered with the legacy stream
  bool destroyed = false;   // removed when its work is done
  bool busy = false;        // its first operation runs on the host thread
  uint64_t fruitless = 0;   // queries since this was made
  double clock_us = 0;      // simulated duration of its work so far
  std::deque<Operation> queue;
  std::unique_ptr<Capture> captured;  // null: not captured
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
