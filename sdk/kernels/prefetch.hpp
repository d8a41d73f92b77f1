// Prefetches memory that the processor would not foresee.
#pragma once

namespace penstock::kernels {

// [any] Asks for the cache line at `address`, to be read or, with for_writing, to be changed. Any
// address will do: one that is not mapped has no effect. GCC takes a function that does nothing but
// prefetch for one without an effect, and removes calls of it; the empty statement in assembler
// keeps them.
template <bool for_writing = false>
[[gnu::always_inline]] inline void prefetch_line(const void* address) {
  __builtin_prefetch(address, for_writing ? 1 : 0);
  __asm__ volatile("");
}

}  // namespace penstock::kernels
