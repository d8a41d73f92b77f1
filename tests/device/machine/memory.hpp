// Device memory that the host cannot reach, and pinned host memory, in one range of addresses.
//
// An allocation lies against a page behind it that nobody may touch. Pages of a device are closed
// but while work runs that uses them: copies open what they name, kernels whatever they touch, one
// fault for each allocation. Addresses come back only when the whole range has been given once.
// Not thread-safe: under the machine's lock, but for describe().
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

namespace penstock::simulated {

inline constexpr int kHost = -1;       // in place of a device: pinned host memory
inline constexpr int kAnyDevice = -2;  // for work that may touch all of them

struct Allocation {
  uint64_t id;
  int device;
  uintptr_t begin;  // what the caller has
  uint64_t bytes;
  uintptr_t pages;  // begins with at most a page that is not the caller's
  uint64_t page_bytes;
  bool open;
  Allocation* next_open;

  bool holds(uintptr_t address, uint64_t n) const {
    return address >= begin && address - begin <= bytes && n <= bytes - (address - begin);
  }
};

class Memory {
 public:
  // Null where the system has no memory left. Filled with a pattern that is not zero.
  // `open`: to the host too, whatever it is.
  Allocation* allocate(int device, uint64_t bytes, bool open);
  // What lay around the allocation and was written over, as a sentence, or nothing. The address is
  // dead from now on.
  std::optional<std::string> release(const Allocation& allocation);
  void release_all();

  // That `address` lies in, its slack included; null where there is none.
  Allocation* find(uintptr_t address) const;
  Allocation* find(const void* pointer) const { return find(reinterpret_cast<uintptr_t>(pointer)); }
  bool reserved(uintptr_t address) const { return address - begin_ < kReservedBytes; }

  // Pages opened are closed by close_all(). Also called from the handler of faults.
  void open(Allocation& allocation);
  void close_all();

  // What lies at an address, for a sentence.
  std::string describe(uintptr_t address) const;

  const std::map<uintptr_t, std::unique_ptr<Allocation>>& live() const { return live_; }

 private:
  static constexpr uint64_t kReservedBytes = uint64_t{1} << 37;  // tsan has no room for much more

  void reserve();
  std::optional<uintptr_t> find_room(uint64_t bytes);

  uintptr_t begin_ = 0;
  uintptr_t next_ = 0;  // where the next allocation is looked for
  uint64_t n_made_ = 0;
  Allocation* opened_ = nullptr;
  std::map<uintptr_t, std::unique_ptr<Allocation>> live_;  // by first page
  std::map<uintptr_t, Allocation> freed_;                  // likewise, until its pages serve again
};

// While one is alive this thread does work of a device, whose memory it may touch.
class Working {
 public:
  Working(Memory& memory, int device, const char* what);
  Working(const Working&) = delete;
  Working& operator=(const Working&) = delete;
  ~Working();

 private:
  Memory& memory_;
};

// From here on a fault in the memory's range opens it for who works, and ends the program with a
// sentence for anybody else.
void watch_faults(Memory& memory);

}  // namespace penstock::simulated
