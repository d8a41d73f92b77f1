// A device, and the objects that the core makes on it: streams, events and memory, which end with
// their owner. Every error carries the error text of the device's runtime.
//
// Threads: any thread, as the table says; one thread at a time per object unless a comment says
// otherwise. An object must not be destroyed while queued work uses it, except streams and events,
// which may be destroyed at once.
#pragma once

#include "core/base/status.hpp"
#include "core/device/device_table.h"

#include <span>
#include <utility>

namespace penstock {

// Identifies a device of a run: a small value, valid for the life of the process.
class Device {
 public:
  Device() = default;
  Device(const penstock_device_table& table, int32_t id) : table_(&table), id_(id) {}

  const penstock_device_table& table() const { return *table_; }
  int32_t id() const { return id_; }
  std::string name() const { return fmt::format("cuda:{}", id_); }
  bool operator==(const Device& other) const = default;

  // DEVICE_ERROR "cuda:0 cannot `action`: ..." for an error number of the table; success, at no
  // cost, for 0.
  Status check(int32_t error, std::string_view action) const {
    return error == 0 ? Status() : failure(error, action);
  }
  // Makes this device current on the calling thread, which must be a thread of the core. Later
  // calls then need not switch devices, libraries find the right device, and work of this thread
  // does not disturb a graph capture on another thread.
  Status make_current() const {
    return check(table_->make_current(id_), "become the device of a thread");
  }
  // OUT_OF_MEMORY for a failed allocation.
  Status check_memory(int32_t error, uint64_t bytes, std::string_view kind) const;

 private:
  Status failure(int32_t error, std::string_view action) const;

  const penstock_device_table* table_ = nullptr;
  int32_t id_ = 0;
};

// Owns one object of the table and destroys it with the table's function.
template <int32_t (*penstock_device_table::*Destroy)(int32_t device, void* thing)>
class DeviceOwned {
 public:
  DeviceOwned() = default;
  DeviceOwned(DeviceOwned&& other) noexcept
      : device_(other.device_), thing_(std::exchange(other.thing_, nullptr)) {}
  DeviceOwned& operator=(DeviceOwned&& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(thing_, other.thing_);
    return *this;
  }
  // An error is ignored: it means that the device is lost with everything on it.
  ~DeviceOwned() {
    if (thing_ != nullptr) (void)(device_.table().*Destroy)(device_.id(), thing_);
  }
  const Device& device() const { return device_; }

 protected:
  DeviceOwned(const Device& device, void* thing) : device_(device), thing_(thing) {}

  Device device_;
  void* thing_ = nullptr;
};

class Event final : public DeviceOwned<&penstock_device_table::event_destroy> {
 public:
  static Result<Event> make(const Device& device);
  // An event with a time, for us_since.
  static Result<Event> make_timed(const Device& device);

  // Marks all work queued on `stream` so far; null: the legacy default stream.
  Status record(void* stream);
  // `done`: the marked work has run, or nothing was marked yet. Does not wait. Several threads may
  // call it at once.
  Status query(bool& done) const;
  // Work queued on `stream` from now on waits for the marked work, if any.
  Status hold_back(void* stream) const;
  // The device time between the marks of the two events, in microseconds. Both events must be done
  // and have a time.
  Result<double> us_since(const Event& before) const;

 private:
  using DeviceOwned::DeviceOwned;
  bool is_recorded_ = false;
};

class Stream final : public DeviceOwned<&penstock_device_table::stream_destroy> {
 public:
  // `urgent`: runs before other streams of the device.
  static Result<Stream> make(const Device& device, bool urgent);

  void* handle() const { return thing_; }
  // Queues the copy and returns. Host memory must be pinned. Zero bytes queue nothing.
  Status copy_to_host(void* target, const void* source, uint64_t bytes) const;
  Status copy_to_device(void* target, const void* source, uint64_t bytes) const;
  // Queues work on device memory: set bytes to zero; set `found` of each array to 1 if a value is
  // NaN or infinite; set every value to NaN; multiply every value by `factor`; round float32 values
  // to `dtype`.
  Status clear(void* target, uint64_t bytes) const;
  Status find_nonfinite(std::span<const penstock_device_values> arrays) const;
  Status fill_nan(void* values, uint64_t count, uint32_t dtype) const;
  Status scale(void* values, uint64_t count, uint32_t dtype, float factor) const;
  Status narrow(const float* source, void* target, uint64_t count, uint32_t dtype) const;
  Status copy_on_device(void* target, const void* source, uint64_t bytes) const;
  Status copy_many(std::span<const penstock_device_copy> copies) const;
  // See penstock_index_list.
  Status check_indices(std::span<const penstock_index_list> lists) const;
  // Blocks until all queued work has run. [control]
  Status wait() const;
  // Like wait(), for a limited time, by polling: a device that hangs does not hang the host.
  // DEADLINE_EXCEEDED. [control]
  Status wait_at_most(uint64_t limit_us) const;

 private:
  using DeviceOwned::DeviceOwned;
};

// Memory on the device.
class DeviceMemory final : public DeviceOwned<&penstock_device_table::free> {
 public:
  static Result<DeviceMemory> make(const Device& device, uint64_t bytes);
  void* data() const { return thing_; }

 private:
  using DeviceOwned::DeviceOwned;
};

// Pinned host memory: the device copies to and from it while the host continues.
class PinnedMemory final : public DeviceOwned<&penstock_device_table::host_free> {
 public:
  static Result<PinnedMemory> make(const Device& device, uint64_t bytes);
  std::byte* data() const { return static_cast<std::byte*>(thing_); }

 private:
  using DeviceOwned::DeviceOwned;
};

}  // namespace penstock
