// Runs single pieces of work. Makes and resets the machine.
#include "machine.hpp"

#include <algorithm>
#include <cstdlib>
#include <thread>

#include "fibers.hpp"

namespace penstock::simulated {
namespace {

uint64_t number_of(const char* variable, uint64_t otherwise) {
  const char* text = std::getenv(variable);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

Settings from_environment() {
  Settings settings;
  settings.seed = number_of("PENSTOCK_SIMULATED_SEED", settings.seed);
  settings.devices = static_cast<int>(
      number_of("PENSTOCK_SIMULATED_DEVICES", static_cast<uint64_t>(settings.devices)));
  return settings;
}

}  // namespace

Machine& machine() {
  static Machine* only = new Machine(from_environment());
  return *only;
}

Machine::Machine(const Settings& first) : journal(first.abort_on_misuse) {
  reset(first);
}

void Machine::reset(const Settings& next) {
  settings = next;
  ++generation_;
  memory.release_all();
  journal = Journal(settings.abort_on_misuse);
  failing_calls = failing_work = Orders{};
  streams.clear();
  events.clear();
  graphs.clear();
  ready_graphs.clear();
  host_functions_.clear();
  devices.clear();
  for (int d = 0; d < settings.devices; ++d) {
    Device& device = devices.emplace_back();
    device.memory_bytes = settings.memory_bytes;
    device.legacy = std::make_unique<Stream>();
    device.legacy->id = 0;
    device.legacy->device = d;
    device.legacy->legacy = true;
  }
  random_.seed(settings.seed);
  seed_order_of_threads(random_());
}

void Machine::run_first(Stream& stream) {
  Operation& first = stream.queue.front();
  switch (first.kind) {
    case Kind::kRecord:
      first.record->done = true;
      first.record->at_us = stream.clock_us;
      break;
    case Kind::kWaitEvent:
      stream.clock_us = std::max(stream.clock_us, first.record->at_us);
      break;
    case Kind::kHostFunction:
      stream.busy = true;
      host_functions_.push_back(&stream);
      serve_host_functions();
      changed_.notify_all();
      return;
    default:
      run_on_device(stream, first);
  }
  end_first(stream);
}

void Machine::run_on_device(Stream& stream, Operation& operation) {
  const bool is_kernel = operation.kind == Kind::kLaunch;
  const Call call = is_kernel                       ? Call::kLaunch
                    : operation.kind == Kind::kFill ? Call::kFill
                                                    : Call::kCopy;
  if (const std::optional<int32_t> error = failing_work.come(call)) {
    devices[stream.device].lost = static_cast<cudaError_t>(*error);
    return;
  }
  const Working working(memory, is_kernel ? stream.device : kAnyDevice,
                        is_kernel ? "a kernel" : "a copy");
  operation.run();
  stream.clock_us += is_kernel ? kLaunchUs : kCopyUs;
}

void Machine::end_first(Stream& stream) {
  stream.queue.pop_front();
  if (stream.destroyed && stream.queue.empty()) streams.erase(stream.id);
  changed_.notify_all();
}

// One thread runs all functions of the host. It is made at its first use.
void Machine::serve_host_functions() {
  if (serving_) return;
  serving_ = true;
  std::thread([this] {
    Lock lock(mutex);
    for (;;) {
      changed_.wait(lock, [this] { return !host_functions_.empty(); });
      Stream& stream = *host_functions_.front();
      host_functions_.pop_front();
      const std::function<void()> function = stream.queue.front().run;
      lock.unlock();
      function();
      lock.lock();
      stream.busy = false;
      end_first(stream);
    }
  }).detach();
}

}  // namespace penstock::simulated
