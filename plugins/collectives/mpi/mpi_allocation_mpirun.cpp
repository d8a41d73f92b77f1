// Part of mpi_collective_mpirun: after the first step the plugin allocates nothing.
#include "mpi_testing.hpp"

#include <cstdlib>
#include <new>
#include <vector>

namespace {
uint64_t n_allocations = 0;
}

// Replaces the program's allocator, for the plugins as well: they find operator new at run time.
// Not inlined, or the compiler sees malloc's pointers freed by what it takes for another allocator.
__attribute__((noinline)) void* operator new(std::size_t size) {
  ++n_allocations;
  if (void* memory = std::malloc(size)) return memory;
  throw std::bad_alloc();
}
__attribute__((noinline)) void operator delete(void* memory) noexcept {
  std::free(memory);
}
__attribute__((noinline)) void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}

namespace penstock::test {
namespace {

TEST(MpiRun, AllocatesNothingAfterTheFirstStep) {
  std::vector<std::vector<float>> data;
  for (uint64_t count : {0, 5, 3000, 900'000}) data.emplace_back(count, 1.0f);
  std::vector<uint64_t> counts(me->size, 3000), offsets(me->size);
  std::vector<float> gathered(3000 * me->size);
  for (uint32_t r = 0; r < me->size; ++r) offsets[r] = 3000 * r;
  for (int step = 0; step < 4; ++step) {
    const uint64_t before = n_allocations;
    for (size_t i = 0; i < data.size(); ++i) {
      auto message = message_of(PENSTOCK_ALL_REDUCE, 30 + i);
      message.send = message.receive = data[i].data();
      message.count = data[i].size();
      EXPECT_TRUE(me->exchange(message).ok());
    }
    auto message = message_of(PENSTOCK_ALL_GATHER, 40);
    message.send = data[2].data();
    message.count = 3000;
    message.receive = gathered.data();
    message.receive_counts = counts.data();
    message.receive_offsets = offsets.data();
    EXPECT_TRUE(me->exchange(message).ok());
    const uint64_t allocations = n_allocations - before;
    if (step == 0) {
      EXPECT_GT(allocations, 0u) << "the count does not see the plugin";
    } else {
      EXPECT_EQ(allocations, 0u) << "in step " << step;
    }
  }
}

}  // namespace
}  // namespace penstock::test
