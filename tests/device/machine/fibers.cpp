// Blocks run one after the other; the threads of a block run in fibers of the thread that runs
// them.
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

// Never destroyed: that would end the fibers by exceptions, through kernels, when the process ends.
std::vector<Thread>& threads = *new std::vector<Thread>(kMostThreads);
std::vector<Warp> warps(kMostThreads / kWarp);
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

// How a block runs: so many threads of the order go on by turns until none can, then the next.
struct Turns {
  std::vector<unsigned> order;
  std::size_t together;
};

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
  threads[threadIdx.x].state = state;
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
    threads[threadIdx.x].state = State::kDone;
    const bool is_new = next_turn != last_turn && threads[*next_turn].state == State::kReady &&
                        !threads[*next_turn].waiting;
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
  fiber& waiting = threads[t].waiting;
  fiber left = (waiting ? std::move(waiting) : take_idle()).resume();
  Thread& last = threads[threadIdx.x];
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
    if (threads[t].state != State::kReady) continue;
    go_on(t);
    any = true;
  }
  return any;
}

// Threads run until all wait at a barrier, and from there on, until all have ended.
void run_block(const Turns& turns) {
  const std::vector<unsigned>& order = turns.order;
  for (Warp& warp : warps) warp.arrived = 0;
  for (;;) {
    for (const unsigned t : order) threads[t].state = State::kReady;
    for (std::size_t i = 0; i < order.size(); i += turns.together)
      while (take_turns(&order[i], turns.together)) {
      }
    std::size_t at_barrier = 0, done = 0;
    for (const unsigned t : order) {
      at_barrier += threads[t].state == State::kAtBarrier ? 1 : 0;
      done += threads[t].state == State::kDone ? 1 : 0;
    }
    if (done == order.size()) return;
    if (at_barrier + done < order.size()) give_up("threads wait for each other for ever");
    if (done > 0) give_up("some threads have ended, others wait at a barrier");
  }
}

// All shared memory of the kernels that lie where one of them does: cuda_runtime.h has it in memory
// of the thread, of which each program or library has one piece. Empty before the first kernel of a
// library that was loaded late has touched its piece.
std::span<std::byte> shared_memory_beside(const void* somewhere) {
  struct Search {
    uintptr_t address;
    std::span<std::byte> found;
  } search{reinterpret_cast<uintptr_t>(somewhere), {}};
  (void)dl_iterate_phdr(
      [](dl_phdr_info* module, std::size_t, void* data) {
        auto& wanted = *static_cast<Search*>(data);
        const std::span<const ElfW(Phdr)> parts(module->dlpi_phdr, module->dlpi_phnum);
        const bool is_it = std::any_of(parts.begin(), parts.end(), [&](const ElfW(Phdr) & part) {
          return part.p_type == PT_LOAD &&
                 wanted.address - module->dlpi_addr - part.p_vaddr < part.p_memsz;
        });
        if (!is_it || module->dlpi_tls_data == nullptr) return is_it ? 1 : 0;
        for (const ElfW(Phdr) & part : parts)
          if (part.p_type == PT_TLS)  // what has values of its own comes first, and is not shared
            wanted.found = {static_cast<std::byte*>(module->dlpi_tls_data) + part.p_filesz,
                            part.p_memsz - part.p_filesz};
        return 1;
      },
      &search);
  return search.found;
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
  Turns turns{std::vector<unsigned>(block.x), kWarp};
  reorder(blocks);
  const std::span<std::byte> shared = shared_memory_beside(&thread.target_type());
  for (const unsigned b : blocks) {
    blockIdx.x = b;
    // What another block left is nothing to rest on. The first block, and some of the others.
    if (!shared.empty() && (b == blocks.front() || random() % 8 == 0))
      std::memset(shared.data(), 0xa5, shared.size());
    reorder(turns);
    run_block(turns);
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
    for (unsigned l = 0; l < kWarp; ++l) threads[first + l].state = State::kReady;
  }
  return values.data();
}

}  // namespace penstock::simulated

long long clock64() {
  static long long ticks = 0;
  return ticks += 10'000'000;
}
