// Blocks run one after the other; the threads of a block are fibers of the thread that runs them.
#include "fibers.hpp"

#include <cuda_runtime.h>
#include <setjmp.h>
#include <ucontext.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

dim3 threadIdx, blockIdx, blockDim, gridDim;

namespace penstock::simulated {
namespace {

constexpr unsigned kWarp = 32;
constexpr unsigned kMostThreads = 1024;
constexpr std::size_t kStackBytes = 64 * 1024;

[[noreturn]] void give_up(const char* why) {
  std::fprintf(stderr, "simulated device: %s (block %u of %u, thread %u of %u)\n", why, blockIdx.x,
               gridDim.x, threadIdx.x, blockDim.x);
  std::abort();
}

enum class State { kReady, kAtBarrier, kInWarp, kDone };

// A fiber is made once and serves the thread of its number in all blocks. It is entered by its
// context the first time; after that a jump is enough, which asks nothing of the system.
struct Fiber {
  jmp_buf place;
  std::unique_ptr<char[]> stack;
  State state;
};

// What the lanes of a warp bring. Two of each: a lane may come to the next operation before another
// has read the result of this one.
struct Warp {
  std::array<uint64_t, kWarp> values[2];
  const char* operation;
  unsigned arrived = 0;
  unsigned turn = 0;
};

std::vector<Fiber> fibers(kMostThreads);
std::vector<Warp> warps(kMostThreads / kWarp);
jmp_buf scheduler;
const std::function<void()>* running = nullptr;

uint64_t order_state = 1;

uint64_t random() {
  order_state ^= order_state << 13, order_state ^= order_state >> 7;
  order_state ^= order_state << 17;
  return order_state;
}

// Ascending, descending, or shuffled.
void reorder(std::vector<unsigned>& order) {
  std::iota(order.begin(), order.end(), 0u);
  const uint64_t kind = random() % 3;
  if (kind == 1) std::reverse(order.begin(), order.end());
  if (kind == 2)
    for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random() % i]);
}

void wait_as(State state) {
  Fiber& fiber = fibers[threadIdx.x];
  fiber.state = state;
  if (_setjmp(fiber.place) == 0) _longjmp(scheduler, 1);
}

void serve() {
  for (;;) {
    (*running)();
    wait_as(State::kDone);
  }
}

// Runs a thread until it waits.
void go_on(unsigned t) {
  threadIdx.x = t;
  Fiber& fiber = fibers[t];
  if (_setjmp(scheduler) != 0) return;
  if (fiber.stack != nullptr) _longjmp(fiber.place, 1);
  fiber.stack = std::make_unique<char[]>(kStackBytes);
  ucontext_t context;
  getcontext(&context);
  context.uc_stack.ss_sp = fiber.stack.get();
  context.uc_stack.ss_size = kStackBytes;
  context.uc_link = nullptr;
  makecontext(&context, serve, 0);
  setcontext(&context);
}

// Every thread runs until it waits; those that all have come go on.
void run_block(const std::vector<unsigned>& order) {
  for (const unsigned t : order) fibers[t].state = State::kReady;
  for (Warp& warp : warps) warp.arrived = 0;
  for (bool progress = true; progress;) {
    progress = false;
    unsigned at_barrier = 0, done = 0;
    for (const unsigned t : order) {
      if (fibers[t].state == State::kReady) {
        go_on(t);
        progress = true;
      }
      at_barrier += fibers[t].state == State::kAtBarrier ? 1 : 0;
      done += fibers[t].state == State::kDone ? 1 : 0;
    }
    if (done == order.size()) return;
    if (at_barrier + done == order.size()) {
      if (done > 0) give_up("some threads have ended, others wait at a barrier");
      for (const unsigned t : order) fibers[t].state = State::kReady;
      progress = true;
    }
  }
  give_up("threads wait for each other for ever");
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
  std::vector<unsigned> blocks(grid.x), threads(block.x);
  reorder(blocks);
  for (const unsigned b : blocks) {
    blockIdx.x = b;
    reorder(threads);
    run_block(threads);
  }
}

void block_barrier() {
  wait_as(State::kAtBarrier);
}

const uint64_t* warp_exchange(const char* operation, unsigned mask, uint64_t value) {
  if (mask != 0xffffffffu) give_up("a warp operation of some lanes only");
  const unsigned t = threadIdx.x, first = t / kWarp * kWarp;
  Warp& warp = warps[t / kWarp];
  if (warp.arrived == 0) warp.operation = operation;
  if (warp.operation != operation) give_up("lanes of a warp meet in different operations");
  auto& values = warp.values[warp.turn % 2];
  values[t - first] = value;
  if (++warp.arrived < kWarp) {
    wait_as(State::kInWarp);
  } else {
    warp.arrived = 0;
    ++warp.turn;
    for (unsigned l = 0; l < kWarp; ++l) fibers[first + l].state = State::kReady;
  }
  return values.data();
}

}  // namespace penstock::simulated

long long clock64() {
  static long long ticks = 0;
  return ticks += 10'000'000;
}
