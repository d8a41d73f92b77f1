// Device memory that the host cannot reach, and pinned host memory, in one range of addresses.
//
// An allocation ends at a closed page. The pages of a device are open only while work runs that
// uses them. A copy opens its operands. A kernel opens an allocation by the first fault in it.
// Addresses are used again only after the whole range was used once. Not thread-safe: every
// function except describe() needs the machine's lock.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

namespace penstock::simulated {

inline constexpr int kHost = -1;       // pinned host memory, in place of a device
inline constexpr int kAnyDevice = -2;  // for work that may touch every device

struct Allocation {
  uint64_t id;
  int device;
  uintptr_t begin;  // the address that the caller received
  uint64_t bytes;
  uintptr_t pages;  // at most one page before `begin`
  uint64_t page_bytes;
  bool open;
  Allocation* next_open;

  bool holds(uintptr_t address, uint64_t n) const {
    return address >= begin && address - begin <= bytes && n <= bytes - (address - begin);
  }
};

class Memory {
 public:
  // The memory is filled with a pattern that is not zero. Null if the system has no memory left.
  // `open`: open to the host, also if it is memory of a device.
  Allocation* allocate(int device, uint64_t bytes, bool open);
  // Returns a message if bytes around the allocation were overwritten. The address is invalid after
  // it.
  std::optional<std::string> release(const Allocation& allocation);
  void release_all();

  // The allocation that contains `address`, including its slack. Null if there is none.
  Allocation* find(uintptr_t address) const;
  Allocation* find(const void* pointer) const { return find(reinterpret_cast<uintptr_t>(pointer)); }
  bool reserved(uintptr_t address) const { return address - begin_ < kReservedBytes; }

  // Opens pages until close_all(). The handler of faults also calls it.
  void open(Allocation& allocation);
  void close_all();

  // Describes the memory at an address, for a message.
  std::string describe(uintptr_t address) const;

  const std::map<uintptr_t, std::unique_ptr<Allocation>>& live() const { return live_; }

 private:
  static constexpr uint64_t kReservedBytes = uint64_t{1} << 37;  // tsan leaves little more

  void reserve();
  std::optional<uintptr_t> find_room(uint64_t bytes);

  uintptr_t begin_ = 0;
  uintptr_t next_ = 0;  // the search for the next allocation begins here
  uint64_t n_made_ = 0;
  Allocation* opened_ = nullptr;
  std::map<uintptr_t, std::unique_ptr<Allocation>> live_;  // by first page
  std::map<uintptr_t, Allocation> freed_;                  // by first page, until used again
};

// While an object lives, this thread does work of a device and may touch the device's memory.
class Working {
 public:
  Working(Memory& memory, int device, const char* what);
  Working(const Working&) = delete;
  Working& operator=(const Working&) = delete;
  ~Working();

 private:
  Memory& memory_;
};

// From now on a fault in the range of the memory opens the allocation if a Working object lives in
// the thread. In any other thread the fault ends the program with a message.
void watch_faults(Memory& memory);

}  // namespace penstock::simulated
