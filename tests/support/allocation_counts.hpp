// The counters of allocations.hpp, for all sources of a program of which one includes that file.
#pragma once

#include <atomic>
#include <cstdint>

namespace penstock::test {

inline std::atomic<uint64_t> process_allocations{0};
inline thread_local uint64_t thread_allocations = 0;

}  // namespace penstock::test
