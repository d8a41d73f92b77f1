#include "core/device/device.hpp"

#include "core/base/clock.hpp"

#include <chrono>
#include <thread>

namespace penstock {

Status Device::failure(int32_t error, std::string_view action) const {
  return device_error("{} cannot {}: {} (error {})", name(), action, table_->error_text(error),
                      error);
}

Status Device::check_memory(int32_t error, uint64_t bytes, std::string_view kind) const {
  if (error == 0) return {};
  return out_of_memory("{} does not get {} bytes of {}: {} (error {})", name(), bytes, kind,
                       table_->error_text(error), error);
}

// ---- events ----

Result<Event> Event::make(const Device& device) {
  void* made = nullptr;
  PENSTOCK_TRY(device.check(device.table().event_create(device.id(), &made), "make an event"));
  return Event(device, made);
}

Result<Event> Event::make_timed(const Device& device) {
  void* made = nullptr;
  PENSTOCK_TRY(device.check(device.table().event_create_timed(device.id(), &made),
                            "make an event with a time"));
  return Event(device, made);
}

Status Event::record(void* stream) {
  is_recorded_ = true;
  return device_.check(device_.table().event_record(device_.id(), thing_, stream),
                       "record an event");
}

Status Event::query(bool& done) const {
  done = true;
  if (!is_recorded_) return {};
  uint32_t is_done = 0;
  PENSTOCK_TRY(device_.check(device_.table().event_query(device_.id(), thing_, &is_done),
                             "finish the queued work"));
  done = is_done != 0;
  return {};
}

Status Event::hold_back(void* stream) const {
  if (!is_recorded_) return {};
  return device_.check(device_.table().event_wait(device_.id(), stream, thing_),
                       "let a stream wait for an event");
}

Result<double> Event::us_since(const Event& before) const {
  double us = 0;
  PENSTOCK_TRY(
      device_.check(device_.table().event_elapsed(device_.id(), before.thing_, thing_, &us),
                    "measure the time between two events"));
  return us;
}

// ---- streams ----

Result<Stream> Stream::make(const Device& device, bool urgent) {
  void* made = nullptr;
  PENSTOCK_TRY(device.check(device.table().stream_create(device.id(), urgent ? 1 : 0, &made),
                            "make a stream"));
  return Stream(device, made);
}

Status Stream::copy_to_host(void* target, const void* source, uint64_t bytes) const {
  if (bytes == 0) return {};
  return device_.check(device_.table().copy_to_host(device_.id(), target, source, bytes, thing_),
                       "copy to host memory");
}

Status Stream::copy_to_device(void* target, const void* source, uint64_t bytes) const {
  if (bytes == 0) return {};
  return device_.check(device_.table().copy_to_device(device_.id(), target, source, bytes, thing_),
                       "copy from host memory");
}

Status Stream::wait() const {
  return device_.check(device_.table().stream_wait(device_.id(), thing_), "finish the queued work");
}

Status Stream::wait_at_most(uint64_t limit_us) const {
  constexpr std::chrono::microseconds kBetweenLooks{100};
  const uint64_t until = now_us() + limit_us;
  PENSTOCK_ASSIGN(Event last, Event::make(device_));
  PENSTOCK_TRY(last.record(thing_));
  for (;;) {
    bool done = false;
    PENSTOCK_TRY(last.query(done));
    if (done) return {};
    if (now_us() >= until)
      return deadline_exceeded("the queued work on {} has not ended for {:.1f} s", device_.name(),
                               double(limit_us) * 1e-6);
    std::this_thread::sleep_for(kBetweenLooks);
  }
}

Status Stream::clear(void* target, uint64_t bytes) const {
  if (bytes == 0) return {};
  return device_.check(device_.table().clear(device_.id(), target, bytes, thing_), "write zeros");
}

Status Stream::find_nonfinite(std::span<const penstock_device_values> arrays) const {
  if (arrays.empty()) return {};
  return device_.check(
      device_.table().find_nonfinite(device_.id(), arrays.data(), arrays.size(), thing_),
      "check for values that are not finite");
}

Status Stream::fill_nan(void* values, uint64_t count, uint32_t dtype) const {
  if (count == 0) return {};
  return device_.check(device_.table().fill_nan(device_.id(), values, count, dtype, thing_),
                       "write NaN");
}

Status Stream::scale(void* values, uint64_t count, uint32_t dtype, float factor) const {
  if (count == 0 || factor == 1) return {};
  return device_.check(device_.table().scale(device_.id(), values, count, dtype, factor, thing_),
                       "scale a result");
}

Status Stream::narrow(const float* source, void* target, uint64_t count, uint32_t dtype) const {
  if (count == 0) return {};
  return device_.check(device_.table().narrow(device_.id(), source, target, count, dtype, thing_),
                       "round a result to 16 bits");
}

Status Stream::copy_on_device(void* target, const void* source, uint64_t bytes) const {
  if (bytes == 0) return {};
  return device_.check(device_.table().copy_on_device(device_.id(), target, source, bytes, thing_),
                       "copy in its memory");
}

Status Stream::copy_many(std::span<const penstock_device_copy> copies) const {
  if (copies.empty()) return {};
  return device_.check(
      device_.table().copy_many(device_.id(), copies.data(), copies.size(), thing_),
      "copy in its memory");
}

Status Stream::check_indices(std::span<const penstock_index_list> lists) const {
  if (lists.empty()) return {};
  return device_.check(
      device_.table().check_indices(device_.id(), lists.data(), lists.size(), thing_),
      "look at indices");
}

// ---- memory ----

Result<DeviceMemory> DeviceMemory::make(const Device& device, uint64_t bytes) {
  void* made = nullptr;
  PENSTOCK_TRY(device.check_memory(device.table().allocate(device.id(), bytes, &made), bytes,
                                   "its own memory"));
  return DeviceMemory(device, made);
}

Result<PinnedMemory> PinnedMemory::make(const Device& device, uint64_t bytes) {
  void* made = nullptr;
  PENSTOCK_TRY(device.check_memory(device.table().host_allocate(device.id(), bytes, &made), bytes,
                                   "pinned host memory"));
  return PinnedMemory(device, made);
}

}  // namespace penstock
