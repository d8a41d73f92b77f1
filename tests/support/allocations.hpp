// Replaces the allocator of the program by an allocator that counts. It counts the plugins too,
// because they find operator new at run time. One source of a program includes this file, and the
// program exports its symbols. A thread may ask for one failed allocation.
#pragma once

#include "allocation_counts.hpp"

#include <cstdlib>
#include <new>

namespace penstock::test {

// The n-th allocation of this thread from now on fails. 0: no allocation fails.
inline thread_local uint64_t failing_allocation = 0;

inline bool allocation_fails() noexcept {
  return failing_allocation != 0 && --failing_allocation == 0;
}

inline void* counted_allocation(std::size_t size) noexcept {
  process_allocations.fetch_add(1, std::memory_order_relaxed);
  ++thread_allocations;
  if (allocation_fails()) return nullptr;
  return std::malloc(size == 0 ? 1 : size);
}

}  // namespace penstock::test

// Not inlined, because the compiler would warn: it would see malloc and a free that it takes for
// another allocator.
__attribute__((noinline)) void* operator new(std::size_t size) {
  if (void* memory = penstock::test::counted_allocation(size)) return memory;
  throw std::bad_alloc();
}
__attribute__((noinline)) void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  return penstock::test::counted_allocation(size);
}
__attribute__((noinline)) void operator delete(void* memory) noexcept {
  std::free(memory);
}
__attribute__((noinline)) void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}
