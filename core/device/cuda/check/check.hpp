// Helpers for the parts of the check of a device table. A failed call ends its part with the error
// text, and the next part still runs. Objects are given back at the end of their scope.
#pragma once

#include "core/device/device_table.h"

#include <penstock/base.h>

#include <cstdint>
#include <cstdio>

namespace penstock::device_check {

// Thrown to end a part, after the difference was printed.
struct Difference {};

#define REQUIRE(condition)                                                         \
  do {                                                                             \
    if (!(condition)) {                                                            \
      std::fprintf(stderr, "%s:%d: failed: %s\n", __FILE__, __LINE__, #condition); \
      throw ::penstock::device_check::Difference{};                                \
    }                                                                              \
  } while (0)

extern const penstock_device_table* table;

// SUCCEED is for calls that must succeed. GIVE_BACK is for calls that give back memory in
// destructors, which must not throw.
void require(int32_t error, const char* call);
void note(int32_t error, const char* call);
#define SUCCEED(function, ...) require(table->function(__VA_ARGS__), #function)
#define GIVE_BACK(function, ...) note(table->function(__VA_ARGS__), #function)

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
    GIVE_BACK(stream_destroy, device_, first);
    GIVE_BACK(stream_destroy, device_, second);
  }
  Streams(const Streams&) = delete;
  Streams& operator=(const Streams&) = delete;

  void* first = nullptr;
  void* second = nullptr;

 private:
  int32_t device_;
};

struct DeviceMemory {
  static void make(int32_t device, uint64_t bytes, void** memory) {
    SUCCEED(allocate, device, bytes, memory);
  }
  static void take_back(int32_t device, void* memory) { GIVE_BACK(free, device, memory); }
};

struct PinnedMemory {
  static void make(int32_t device, uint64_t bytes, void** memory) {
    SUCCEED(host_allocate, device, bytes, memory);
  }
  static void take_back(int32_t device, void* memory) { GIVE_BACK(host_free, device, memory); }
};

// `count` elements.
template <class T, class Memory>
class Array {
 public:
  Array(int32_t device, uint64_t count) : device_(device) {
    void* made = nullptr;
    Memory::make(device, count * sizeof(T), &made);
    data = static_cast<T*>(made);
  }
  ~Array() { Memory::take_back(device_, data); }
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;

  T* data = nullptr;

 protected:
  int32_t device_;
};

template <class T>
using OnDevice = Array<T, DeviceMemory>;

template <class T>
class OnHost : public Array<T, PinnedMemory> {
 public:
  using OnHost::Array::Array;

  void send(T* to, uint64_t count, void* stream) const {
    SUCCEED(copy_to_device, this->device_, to, this->data, count * sizeof(T), stream);
  }
  // Returns when the elements have arrived.
  void bring(const T* from, uint64_t count, void* stream) {
    SUCCEED(copy_to_host, this->device_, this->data, from, count * sizeof(T), stream);
    SUCCEED(stream_wait, this->device_, stream);
  }
  T& operator[](uint64_t i) { return this->data[i]; }
};

// Inspects an array for non-finite values and copies the answer in `array.found` to the host.
class Look {
 public:
  explicit Look(int32_t device) : device_(device), there_(device, 1), found_(device, 1) {}

  uint32_t operator()(penstock_device_values array, void* stream) {
    array.found = there_.data;
    SUCCEED(clear, device_, there_.data, sizeof(uint32_t), stream);
    SUCCEED(find_nonfinite, device_, &array, 1, stream);
    found_.bring(there_.data, 1, stream);
    return found_[0];
  }

 private:
  int32_t device_;
  OnDevice<uint32_t> there_;
  OnHost<uint32_t> found_;
};

void check_elements(int32_t device);     // elements.cu
void check_16_bits(int32_t device);      // halves.cu
void check_offsets(int32_t device);      // offsets.cu
void check_many_arrays(int32_t device);  // many.cu
void check_many_lists(int32_t device);   // many.cu

}  // namespace penstock::device_check
