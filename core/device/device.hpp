// A device, and what the core makes on it: streams, events and memory that end with their owner.
// Every failure carries the error text of the device's runtime.
//
// Threads: any, as the table says; one object is used by one thread at a time unless a comment says
// otherwise. What is destroyed must not be in use by work that is still queued, but streams and
// events, whose end waits for nothing.
#pragma once

#include "core/base/status.hpp"
#include "core/device/device_table.h"

#include <span>
#include <utility>

namespace penstock {

// Which device of a run: a small value, valid as long as the process.
class Device {
 public:
  Device() = default;
  Device(const penstock_device_table& table, int32_t id) : table_(&table), id_(id) {}

  const penstock_device_table& table() const { return *table_; }
  int32_t id() const { return id_; }
  std::string name() const { return fmt::format("cuda:{}", id_); }
  bool operator==(const Device& other) const = default;

  // DEVICE_ERROR "cuda:0 cannot `action`: ..." for an error number of the table; success for 0,
  // which costs nothing.
  Status check(int32_t error, std::string_view action) const {
    return error == 0 ? Status() : failure(error, action);
  }
  // The calling thread is one of ours: this is its device from now on, for calls that then need not
  // change it and for libraries that ask, and what others capture meanwhile is not disturbed by
  // what it does.
  Status make_current() const {
    return check(table_->make_current(id_), "become the device of a thread");
  }
  // OUT_OF_MEMORY for a call that was to give memory.
  Status check_memory(int32_t error, uint64_t bytes, std::string_view kind) const;

 private:
  Status failure(int32_t error, std::string_view action) const;

  const penstock_device_table* table_ = nullptr;
  int32_t id_ = 0;
};

// Owns one thing of the table's and gives it to the function of the table that ends it.
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
  // Whoever destroys has no use for an error: the device is lost, and so is what was on it.
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
  // One with a time: see us_since.
  static Result<Event> make_timed(const Device& device);

  // Takes note of all that is queued on `stream` so far; null: the legacy default stream.
  Status record(void* stream);
  // done: all of that has run, or nothing was noted yet. Does not wait. Several threads may ask.
  Status query(bool& done) const;
  // What is queued on `stream` from now on runs after what was noted last, if anything was.
  Status hold_back(void* stream) const;
  // What lies between what the two noted last, in microseconds of the device's. Both are done and
  // have a time.
  Result<double> us_since(const Event& before) const;

 private:
  using DeviceOwned::DeviceOwned;
  bool is_recorded_ = false;
};

class Stream final : public DeviceOwned<&penstock_device_table::stream_destroy> {
 public:
  // `urgent`: goes before others of the device.
  static Result<Stream> make(const Device& device, bool urgent);

  void* handle() const { return thing_; }
  // Queued; the host goes on. Memory of the host must be pinned. No bytes are no work.
  Status copy_to_host(void* target, const void* source, uint64_t bytes) const;
  Status copy_to_device(void* target, const void* source, uint64_t bytes) const;
  // The same in memory of the device: zero bytes; `found` of each array becomes 1 where a value is
  // NaN or infinite; every value becomes NaN; every value times `factor`; float32 values rounded.
  Status clear(void* target, uint64_t bytes) const;
  Status find_nonfinite(std::span<const penstock_device_values> arrays) const;
  Status fill_nan(void* values, uint64_t count, uint32_t dtype) const;
  Status scale(void* values, uint64_t count, uint32_t dtype, float factor) const;
  Status narrow(const float* source, void* target, uint64_t count, uint32_t dtype) const;
  Status copy_on_device(void* target, const void* source, uint64_t bytes) const;
  Status copy_many(std::span<const penstock_device_copy> copies) const;
  // See penstock_index_list.
  Status check_indices(std::span<const penstock_index_list> lists) const;
  // Blocks until all that is queued has run. [control]
  Status wait() const;
  // The same for a limited time, by asking again and again: a device that hangs does not hang the
  // host. DEADLINE_EXCEEDED. [control]
  Status wait_at_most(uint64_t limit_us) const;

 private:
  using DeviceOwned::DeviceOwned;
};

// Memory of the device.
class DeviceMemory final : public DeviceOwned<&penstock_device_table::free> {
 public:
  static Result<DeviceMemory> make(const Device& device, uint64_t bytes);
  void* data() const { return thing_; }

 private:
  using DeviceOwned::DeviceOwned;
};

// Memory of the host that the device copies to and from while the host goes on.
class PinnedMemory final : public DeviceOwned<&penstock_device_table::host_free> {
 public:
  static Result<PinnedMemory> make(const Device& device, uint64_t bytes);
  std::byte* data() const { return static_cast<std::byte*>(thing_); }

 private:
  using DeviceOwned::DeviceOwned;
};

}  // namespace penstock
