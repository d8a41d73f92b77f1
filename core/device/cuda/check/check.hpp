// What the parts of the check of a device table share. A call that fails ends the program with its
// text; what is made is given back where its scope ends.
#pragma once

#include "core/device/device_table.h"

#include <penstock/base.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>

namespace penstock::device_check {

#define REQUIRE(condition)                                                         \
  do {                                                                             \
    if (!(condition)) {                                                            \
      std::fprintf(stderr, "%s:%d: failed: %s\n", __FILE__, __LINE__, #condition); \
      std::exit(1);                                                                \
    }                                                                              \
  } while (0)

extern const penstock_device_table* table;

// Every call that must succeed goes through here.
void require(int32_t error, const char* call);
#define SUCCEED(function, ...) require(table->function(__VA_ARGS__), #function)

constexpr uint64_t kSizes[] = {0, 1, 1023, 1 << 20};
constexpr uint32_t kFloat32 = PENSTOCK_FLOAT32;

// Two streams of the device, the second of high priority.
class Streams {
 public:
  explicit Streams(int32_t device) : device_(device) {
    SUCCEED(stream_create, device, 0, &first);
    SUCCEED(stream_create, device, 1, &second);
  }
  ~Streams() {
    SUCCEED(stream_destroy, device_, first);
    SUCCEED(stream_destroy, device_, second);
  }
  Streams(const Streams&) = delete;
  Streams& operator=(const Streams&) = delete;

  void* first = nullptr;
  void* second = nullptr;

 private:
  int32_t device_;
};

// `count` elements in the device's memory.
template <class T>
class OnDevice {
 public:
  OnDevice(int32_t device, uint64_t count) : device_(device) {
    void* made = nullptr;
    SUCCEED(allocate, device, count * sizeof(T), &made);
    data = static_cast<T*>(made);
  }
  ~OnDevice() { SUCCEED(free, device_, data); }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

  T* data = nullptr;

 private:
  int32_t device_;
};

// `count` elements in pinned memory of the host.
template <class T>
class OnHost {
 public:
  OnHost(int32_t device, uint64_t count) : device_(device) {
    void* made = nullptr;
    SUCCEED(host_allocate, device, count * sizeof(T), &made);
    data = static_cast<T*>(made);
  }
  ~OnHost() { SUCCEED(host_free, device_, data); }
  OnHost(const OnHost&) = delete;
  OnHost& operator=(const OnHost&) = delete;

  void send(T* to, uint64_t count, void* stream) const {
    SUCCEED(copy_to_device, device_, to, data, count * sizeof(T), stream);
  }
  // Comes back when the elements are there.
  void bring(const T* from, uint64_t count, void* stream) {
    SUCCEED(copy_to_host, device_, data, from, count * sizeof(T), stream);
    SUCCEED(stream_wait, device_, stream);
  }
  T& operator[](uint64_t i) { return data[i]; }

  T* data = nullptr;

 private:
  int32_t device_;
};

void check_elements(int32_t device);     // elements.cu
void check_16_bits(int32_t device);      // halves.cu
void check_many_arrays(int32_t device);  // many.cu
void check_many_lists(int32_t device);   // many.cu

}  // namespace penstock::device_check
