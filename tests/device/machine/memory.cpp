#include "memory.hpp"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>

namespace penstock::simulated {
namespace {

constexpr uint64_t kPage = 4096;
constexpr uint64_t kAlignment = 256;  // as cudaMalloc guarantees
constexpr unsigned char kFresh = 0xa5;
constexpr unsigned char kSlack = 0xc7;  // between the allocation and the ends of its pages

uint64_t round_up(uint64_t n, uint64_t unit) {
  return (n + unit - 1) / unit * unit;
}

std::string name(const Allocation& allocation) {
  const std::string where = allocation.device == kHost
                                ? "pinned host memory"
                                : fmt::format("memory of device {}", allocation.device);
  return fmt::format("allocation {} ({} bytes, {})", allocation.id, allocation.bytes, where);
}

unsigned char* at(uintptr_t address) {
  return reinterpret_cast<unsigned char*>(address);
}

// The first byte of [begin, end) that was overwritten.
std::optional<uintptr_t> written(uintptr_t begin, uintptr_t end) {
  for (uintptr_t address = begin; address < end; ++address)
    if (*at(address) != kSlack) return address;
  return std::nullopt;
}

}  // namespace

void Memory::reserve() {
  void* range =
      mmap(nullptr, kReservedBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (range == MAP_FAILED) return;
  begin_ = reinterpret_cast<uintptr_t>(range);
  next_ = begin_ + kPage;
  watch_faults(*this);
}

// Next fit: searches after the last allocation, so that addresses are used again as late as
// possible.
std::optional<uintptr_t> Memory::find_room(uint64_t bytes) {
  const uintptr_t end = begin_ + kReservedBytes;
  for (int round = 0; round < 2; ++round) {
    auto next = live_.lower_bound(next_);
    for (;;) {
      const uintptr_t limit = next == live_.end() ? end : next->first;
      if (limit >= next_ && limit - next_ >= bytes) return next_;
      if (next == live_.end()) break;
      next_ = next->first + next->second->page_bytes + kPage;
      ++next;
    }
    next_ = begin_ + kPage;
  }
  return std::nullopt;
}

Allocation* Memory::allocate(int device, uint64_t bytes, bool open) {
  if (begin_ == 0) reserve();
  if (begin_ == 0 || bytes > kReservedBytes / 2) return nullptr;
  const uint64_t page_bytes = round_up(bytes, kPage);
  const std::optional<uintptr_t> room = find_room(page_bytes + kPage);
  if (!room || mprotect(at(*room), page_bytes, PROT_READ | PROT_WRITE) != 0) return nullptr;
  next_ = *room + page_bytes + kPage;
  freed_.erase(freed_.lower_bound(*room), freed_.lower_bound(next_));

  const uintptr_t begin = *room + page_bytes - round_up(bytes, kAlignment);
  std::memset(at(*room), kSlack, begin - *room);
  std::memset(at(begin), kFresh, bytes);
  std::memset(at(begin + bytes), kSlack, *room + page_bytes - begin - bytes);
  if (!open) mprotect(at(*room), page_bytes, PROT_NONE);
  auto made = std::make_unique<Allocation>(
      Allocation{++n_made_, device, begin, bytes, *room, page_bytes, open, nullptr});
  return (live_[*room] = std::move(made)).get();
}

std::optional<std::string> Memory::release(const Allocation& allocation) {
  const Allocation gone = allocation;
  if (!gone.open) mprotect(at(gone.pages), gone.page_bytes, PROT_READ);
  std::optional<uintptr_t> spoiled = written(gone.pages, gone.begin);
  if (!spoiled) spoiled = written(gone.begin + gone.bytes, gone.pages + gone.page_bytes);
  mmap(at(gone.pages), gone.page_bytes, PROT_NONE,
       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  live_.erase(gone.pages);
  freed_[gone.pages] = gone;
  if (!spoiled) return std::nullopt;
  return *spoiled < gone.begin ? fmt::format("{} was written to {} bytes before its begin",
                                             name(gone), gone.begin - *spoiled)
                               : fmt::format("{} was written to {} bytes behind its end",
                                             name(gone), *spoiled - gone.begin - gone.bytes);
}

void Memory::release_all() {
  while (!live_.empty()) release(*live_.begin()->second);
}

Allocation* Memory::find(uintptr_t address) const {
  auto after = live_.upper_bound(address);
  if (after == live_.begin()) return nullptr;
  Allocation* before = std::prev(after)->second.get();
  return address - before->pages < before->page_bytes ? before : nullptr;
}

void Memory::open(Allocation& allocation) {
  if (allocation.open) return;
  mprotect(at(allocation.pages), allocation.page_bytes, PROT_READ | PROT_WRITE);
  allocation.open = true;
  allocation.next_open = opened_;
  opened_ = &allocation;
}

void Memory::close_all() {
  for (; opened_ != nullptr; opened_ = opened_->next_open) {
    mprotect(at(opened_->pages), opened_->page_bytes, PROT_NONE);
    opened_->open = false;
  }
}

std::string Memory::describe(uintptr_t address) const {
  const auto last_before = [&](const auto& map) {
    auto after = map.upper_bound(address);
    return after == map.begin() ? map.end() : std::prev(after);
  };
  if (const Allocation* live = find(address); live != nullptr) {
    return fmt::format("byte {} of {}", static_cast<int64_t>(address - live->begin), name(*live));
  }
  const auto freed = last_before(freed_);
  if (freed != freed_.end() && address - freed->first < freed->second.page_bytes) {
    return fmt::format("byte {} of {}, which has been freed",
                       static_cast<int64_t>(address - freed->second.begin), name(freed->second));
  }
  const auto live = last_before(live_);
  if (live != live_.end()) {
    const Allocation& near = *live->second;
    const uintptr_t end = near.begin + near.bytes;
    if (address - near.pages < near.page_bytes + kPage)
      return fmt::format("{} bytes behind the end of {}", address - end, name(near));
  }
  return "memory that was never allocated";
}

}  // namespace penstock::simulated
