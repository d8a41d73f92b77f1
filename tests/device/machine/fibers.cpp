// Blocks run one after the other, and sometimes two blocks alternate between barriers. The threads
// of a block run as fibers of one thread.
#include "fibers.hpp"

#include <cuda_runtime.h>

#include <link.h>

#include <boost/context/fiber.hpp>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <span>
#include <typeinfo>
#include <utility>
#include <vector>

dim3 threadIdx, blockIdx, blockDim, gridDim;

namespace penstock::simulated {
namespace {

constexpr unsigned kWarp = 32;
constexpr unsigned kMostThreads = 1024;
// Not a multiple of a page. Otherwise the tops of all stacks would share few sets of the caches.
constexpr std::size_t kStackBytes = 64 * 1024 + 576;

[[noreturn]] void give_up(const char* why) {
  std::fprintf(stderr, "simulated device: %s (block %u of %u, thread %u of %u)\n", why, blockIdx.x,
               gridDim.x, threadIdx.x, blockDim.x);
  std::abort();
}

enum class State { kReady, kAtBarrier, kInWarp, kDone };

using boost::context::fiber;

struct Thread {
  fiber waiting;  // the suspended fiber, if the thread has begun
  State state;
};

// The values that the lanes of a warp exchange. There are two arrays, because a lane may reach the
// next operation before another lane has read the result of this operation.
struct Warp {
  std::array<uint64_t, kWarp> values[2];
  const char* operation;
  unsigned arrived = 0;
  unsigned turn = 0;
};

// The order of a block's threads. A group of `together` threads takes turns until no thread of the
// group can continue, then the next group runs.
struct Turns {
  std::vector<unsigned> order;
  std::size_t together;
};

struct Block {
  unsigned index;
  Turns turns;
  std::vector<Thread> threads = std::vector<Thread>(kMostThreads);
  std::vector<Warp> warps = std::vector<Warp>(kMostThreads / kWarp);
  std::vector<std::byte> shared;  // copy of its shared memory while the other block runs
};

// Never destroyed. At the end of the process the destructors would end the fibers by exceptions,
// which would pass through kernels.
Block& first_block = *new Block;
Block& second_block = *new Block;
Block* here = &first_block;                          // the block that runs now
std::vector<fiber>& idle = *new std::vector<fiber>;  // fibers whose threads have ended
fiber scheduler;
const std::function<void()>* running = nullptr;

uint64_t order_state = 1;

uint64_t random() {
  order_state ^= order_state << 13, order_state ^= order_state >> 7;
  order_state ^= order_state << 17;
  return order_state;
}

// Makes an ascending, descending or random order.
void reorder(std::vector<unsigned>& order) {
  std::iota(order.begin(), order.end(), 0u);
  const uint64_t kind = random() % 3;
  if (kind == 1) std::reverse(order.begin(), order.end());
  if (kind == 2)
    for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random() % i]);
}

// The order is mostly by warp, which suits the caches. Sometimes all threads take turns.
void reorder(Turns& turns) {
  if (random() % 4 == 0) {
    turns.together = turns.order.size();
    return reorder(turns.order);
  }
  turns.together = kWarp;
  std::vector<unsigned> of_warps(turns.order.size() / kWarp), of_lanes(kWarp);
  reorder(of_warps);
  reorder(of_lanes);
  auto next = turns.order.begin();
  for (const unsigned warp : of_warps)
    for (const unsigned lane : of_lanes) *next++ = warp * kWarp + lane;
}

void wait_as(State state) {
  here->threads[threadIdx.x].state = state;
  scheduler = std::move(scheduler).resume();
}

// Threads of the current group whose turn is still to come.
const unsigned *next_turn = nullptr, *last_turn = nullptr;

// Runs threads one after the other until a thread waits. A switch of fibers for each thread would
// take longer than most threads do.
fiber serve(fiber&& from) {
  scheduler = std::move(from);
  for (;;) {
    (*running)();
    here->threads[threadIdx.x].state = State::kDone;
    const bool is_new = next_turn != last_turn &&
                        here->threads[*next_turn].state == State::kReady &&
                        !here->threads[*next_turn].waiting;
    if (is_new)
      threadIdx.x = *next_turn++;
    else
      scheduler = std::move(scheduler).resume();
  }
}

fiber take_idle() {
  if (idle.empty())
    return fiber(std::allocator_arg, boost::context::fixedsize_stack(kStackBytes), serve);
  fiber taken = std::move(idle.back());
  idle.pop_back();
  return taken;
}

// Runs a thread until it waits. If it ends, its fiber runs further new threads of the group.
void go_on(unsigned t) {
  threadIdx.x = t;
  fiber& waiting = here->threads[t].waiting;
  fiber left = (waiting ? std::move(waiting) : take_idle()).resume();
  Thread& last = here->threads[threadIdx.x];
  if (last.state == State::kDone)
    idle.push_back(std::move(left));
  else
    last.waiting = std::move(left);
}

// Runs each of these threads until it waits. Returns whether any thread could run.
bool take_turns(const unsigned* first, std::size_t n) {
  bool any = false;
  next_turn = first;
  last_turn = first + n;
  while (next_turn != last_turn) {
    const unsigned t = *next_turn++;
    if (here->threads[t].state != State::kReady) continue;
    go_on(t);
    any = true;
  }
  return any;
}

// Runs the threads until all wait at a barrier or every thread has ended. Returns whether every
// thread has ended.
bool run_to_barrier() {
  const std::vector<unsigned>& order = here->turns.order;
  const std::size_t together = here->turns.together;
  blockIdx.x = here->index;
  for (const unsigned t : order) here->threads[t].state = State::kReady;
  for (std::size_t i = 0; i < order.size(); i += together)
    while (take_turns(&order[i], together)) {
    }
  std::size_t at_barrier = 0, done = 0;
  for (const unsigned t : order) {
    at_barrier += here->threads[t].state == State::kAtBarrier ? 1 : 0;
    done += here->threads[t].state == State::kDone ? 1 : 0;
  }
  if (done == order.size()) return true;
  if (at_barrier + done < order.size()) give_up("threads wait for each other for ever");
  if (done > 0) give_up("some threads have ended, others wait at a barrier");
  return false;
}

// The shared memory of all kernels in the program or library that contains `somewhere`.
// cuda_runtime.h declares shared memory as thread_local, so each program or library has one range
// per thread. The thread_local data of this library belongs to the simulated runtime. Its kernels
// are kernels of the core, which use no shared memory.
struct Shared {
  bool is_known = false;  // false until a kernel of a library that was loaded late has touched it
  std::span<std::byte> memory;
};

Shared shared_memory_beside(const void* somewhere) {
  struct Search {
    uintptr_t address;
    Shared found;
  } search{reinterpret_cast<uintptr_t>(somewhere), {}};
  static const char here_too = 0;
  (void)dl_iterate_phdr(
      [](dl_phdr_info* module, std::size_t, void* data) {
        auto& wanted = *static_cast<Search*>(data);
        bool is_it = false, is_this_library = false;
        const ElfW(Phdr)* of_threads = nullptr;
        for (const ElfW(Phdr) & part : std::span(module->dlpi_phdr, module->dlpi_phnum)) {
          const auto holds = [&](uintptr_t address) {
            return part.p_type == PT_LOAD &&
                   address - module->dlpi_addr - part.p_vaddr < part.p_memsz;
          };
          is_it = is_it || holds(wanted.address);
          is_this_library = is_this_library || holds(reinterpret_cast<uintptr_t>(&here_too));
          if (part.p_type == PT_TLS) of_threads = &part;
        }
        if (!is_it) return 0;
        if (is_this_library) {
          wanted.found.is_known = true;
          return 1;
        }
        wanted.found.is_known = of_threads == nullptr || module->dlpi_tls_data != nullptr;
        if (module->dlpi_tls_data != nullptr)  // initialised thread_local data comes first
          wanted.found.memory = {
              static_cast<std::byte*>(module->dlpi_tls_data) + of_threads->p_filesz,
              of_threads->p_memsz - of_threads->p_filesz};
        return 1;
      },
      &search);
  return search.found;
}

void spoil(std::span<std::byte> shared) {
  if (!shared.empty()) std::memset(shared.data(), 0xa5, shared.size());
}

void begin(Block& block, unsigned index, unsigned n_threads) {
  block.index = index;
  block.turns.order.resize(n_threads);
  reorder(block.turns);
  for (Warp& warp : block.warps) warp.arrived = 0;
}

// Two blocks take turns, each with its own copy of the shared memory.
void run_two(std::span<std::byte> shared) {
  Block* other = &second_block;
  here = &first_block;
  spoil(shared);
  other->shared.assign(shared.begin(), shared.end());
  bool other_is_done = false;
  for (;;) {
    const bool is_done = run_to_barrier();
    if (is_done && other_is_done) break;
    if (other_is_done || (!is_done && random() % 2 == 0)) continue;
    here->shared.assign(shared.begin(), shared.end());
    std::copy(other->shared.begin(), other->shared.end(), shared.begin());
    std::swap(here, other);
    other_is_done = is_done;
  }
  here = &first_block;
}

}  // namespace

void seed_order_of_threads(uint64_t seed) {
  order_state = seed | 1;
}

bool grid_is_valid(dim3 grid, dim3 block) {
  return grid.x > 0 && grid.y == 1 && grid.z == 1 && block.x > 0 && block.x <= kMostThreads &&
         block.x % kWarp == 0 && block.y == 1 && block.z == 1;
}

void run_grid(dim3 grid, dim3 block, const std::function<void()>& thread) {
  gridDim = grid;
  blockDim = block;
  running = &thread;
  std::vector<unsigned> blocks(grid.x);
  reorder(blocks);
  Shared shared;
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    if (!shared.is_known && i < 2) shared = shared_memory_beside(&thread.target_type());
    begin(first_block, blocks[i], block.x);
    if (shared.is_known && i + 1 < blocks.size() && random() % 32 == 0) {
      begin(second_block, blocks[++i], block.x);
      run_two(shared.memory);
      continue;
    }
    // A kernel must not rely on values in shared memory from another block. To save time, this
    // overwrites the shared memory only for the first block and for some others.
    if (i == 0 || random() % 8 == 0) spoil(shared.memory);
    while (!run_to_barrier()) {
    }
  }
}

void block_barrier() {
  wait_as(State::kAtBarrier);
}

const uint64_t* warp_exchange(const char* operation, unsigned mask, uint64_t value) {
  if (mask != 0xffffffffu) give_up("a warp operation of some lanes only");
  const unsigned t = threadIdx.x, first = t / kWarp * kWarp;
  Warp& warp = here->warps[t / kWarp];
  if (warp.arrived == 0) warp.operation = operation;
  if (warp.operation != operation) give_up("lanes of a warp meet in different operations");
  auto& values = warp.values[warp.turn % 2];
  values[t - first] = value;
  if (++warp.arrived < kWarp) {
    wait_as(State::kInWarp);
  } else {
    warp.arrived = 0;
    ++warp.turn;
    for (unsigned l = 0; l < kWarp; ++l) here->threads[first + l].state = State::kReady;
  }
  return values.data();
}

}  // namespace penstock::simulated

long long clock64() {
  static long long ticks = 0;
  return ticks += 10'000'000;
}
