// Blocks run one after the other, some of them by twos, in turns from barrier to barrier; the
// threads of a block run in fibers of the thread that runs them.
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
// No multiple of a page, or the tops of all stacks would share few sets of the caches.
constexpr std::size_t kStackBytes = 64 * 1024 + 576;

[[noreturn]] void give_up(const char* why) {
  std::fprintf(stderr, "simulated device: %s (block %u of %u, thread %u of %u)\n", why, blockIdx.x,
               gridDim.x, threadIdx.x, blockDim.x);
  std::abort();
}

enum class State { kReady, kAtBarrier, kInWarp, kDone };

using boost::context::fiber;

struct Thread {
  fiber waiting;  // where it goes on, if it has begun
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

// How a block runs: so many threads of the order go on by turns until none can, then the next.
struct Turns {
  std::vector<unsigned> order;
  std::size_t together;
};

struct Block {
  unsigned index;
  Turns turns;
  std::vector<Thread> threads = std::vector<Thread>(kMostThreads);
  std::vector<Warp> warps = std::vector<Warp>(kMostThreads / kWarp);
  std::vector<std::byte> shared;  // its shared memory, while the other block runs
};

// Never destroyed: that would end the fibers by exceptions, through kernels, when the process ends.
Block& first_block = *new Block;
Block& second_block = *new Block;
Block* here = &first_block;                          // the one that goes on now
std::vector<fiber>& idle = *new std::vector<fiber>;  // fibers whose threads have ended
fiber scheduler;
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

// Mostly warp by warp, which the caches like; now and then all threads by turns.
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

// Those that go on by turns and have not had theirs.
const unsigned *next_turn = nullptr, *last_turn = nullptr;

// Runs threads one after the other until one waits: a switch for each that does not would take
// longer than most do.
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

// Runs a thread, and those behind it that its fiber can begin, until one waits.
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

// Each of these runs until it waits; whether any could.
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

// Threads run until all wait at a barrier, or all have ended; whether they have.
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

// All shared memory of the kernels that lie where one of them does: cuda_runtime.h has it in memory
// of the thread, of which each program or library has one piece.
struct Shared {
  bool is_known = false;  // not before a kernel of a library that was loaded late has touched it
  std::span<std::byte> memory;
};

Shared shared_memory_beside(const void* somewhere) {
  struct Search {
    uintptr_t address;
    Shared found;
  } search{reinterpret_cast<uintptr_t>(somewhere), {}};
  (void)dl_iterate_phdr(
      [](dl_phdr_info* module, std::size_t, void* data) {
        auto& wanted = *static_cast<Search*>(data);
        bool is_it = false, is_ours = false;
        const ElfW(Phdr)* of_threads = nullptr;
        for (const ElfW(Phdr) & part : std::span(module->dlpi_phdr, module->dlpi_phnum)) {
          is_it = is_it || (part.p_type == PT_LOAD &&
                            wanted.address - module->dlpi_addr - part.p_vaddr < part.p_memsz);
          is_ours = is_ours ||
                    (part.p_type == PT_LOAD && reinterpret_cast<uintptr_t>(&seed_order_of_threads) -
                                                       module->dlpi_addr - part.p_vaddr <
                                                   part.p_memsz);
          if (part.p_type == PT_TLS) of_threads = &part;
        }
        if (!is_it) return 0;
        // Beside the core's kernels, which share nothing, lie what threads have of the machine.
        if (is_ours) of_threads = nullptr;
        wanted.found.is_known = of_threads == nullptr || module->dlpi_tls_data != nullptr;
        if (of_threads != nullptr &&
            module->dlpi_tls_data != nullptr)  // what has values of its own comes first
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

// The two take turns, each with shared memory of its own.
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
    // What another block left is nothing to rest on. The first block, and some of the others.
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
