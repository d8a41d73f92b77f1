// See masking.hpp.
#include <kernels/cuda/block.cuh>
#include <kernels/cuda/masking.hpp>
#include <kernels/cuda/queue.hpp>

namespace penstock::kernels::cuda {
namespace {

constexpr uint32_t kThreads = 256;

__device__ uint64_t this_entry() {
  return uint64_t{blockIdx.x} * kThreads + threadIdx.x;
}

__device__ void note(uint64_t entry, uint64_t* undo, uint64_t mark, uint64_t count) {
  if (entry != 0) return;
  undo[0] = mark;
  undo[1] = count;
}

// A block of more than enough: `count` may be 0, and the note is made all the same.
__global__ void __launch_bounds__(kThreads)
    keep_and_clear(Masked masked, const uint32_t* indices, uint64_t count, uint64_t mark) {
  const uint64_t j = this_entry();
  note(j, masked.undo, mark, count);
  if (j >= count) return;
  const uint32_t i = indices[j];
  masked.indices[j] = i;
  masked.values[j] = masked.momentum[i];
  masked.momentum[i] = 0;
}

__global__ void __launch_bounds__(kThreads) keep_all(Masked masked, bool clears, uint64_t mark) {
  const uint64_t i = this_entry();
  note(i, masked.undo, mark, kMaskedAll);
  if (i >= masked.n) return;
  masked.values[i] = masked.momentum[i];
  if (clears) masked.momentum[i] = 0;
}

__global__ void __launch_bounds__(kThreads)
    clear_entries(Masked masked, const uint32_t* indices, uint64_t count) {
  const uint64_t j = this_entry();
  if (j < count) masked.momentum[indices[j]] = 0;
}

__global__ void __launch_bounds__(kThreads) restore(Masked masked, uint64_t mark) {
  if (masked.undo[0] != mark) return;
  const uint64_t j = this_entry(), count = masked.undo[1];
  if (count == kMaskedAll) {
    if (j < masked.n) masked.momentum[j] = masked.values[j];
  } else if (j < count) {
    masked.momentum[masked.indices[j]] = masked.values[j];
  }
}

// After all blocks of `restore` have read it.
__global__ void __launch_bounds__(kWarp) forget(uint64_t* undo, uint64_t mark) {
  if (threadIdx.x == 0 && undo[0] == mark) undo[0] = 0;
}

uint64_t blocks_of(uint64_t entries) {
  return entries == 0 ? 1 : pieces(entries, kThreads);
}

}  // namespace

int32_t mask_entries(const Masked& masked, const uint32_t* indices, uint64_t count, uint64_t mark,
                     void* stream) noexcept {
  if (count > masked.n) return cudaErrorInvalidValue;
  Queue queue(stream);
  queue.run(keep_and_clear, blocks_of(count), kThreads, masked, indices, count, mark);
  return queue.error();
}

int32_t mask_all(const Masked& masked, uint64_t mark, void* stream) noexcept {
  Queue queue(stream);
  queue.run(keep_all, blocks_of(masked.n), kThreads, masked, true, mark);
  return queue.error();
}

int32_t mask_entries_of_all(const Masked& masked, const uint32_t* indices, uint64_t count,
                            uint64_t mark, void* stream) noexcept {
  if (count > masked.n) return cudaErrorInvalidValue;
  Queue queue(stream);
  queue.run(keep_all, blocks_of(masked.n), kThreads, masked, false, mark);
  queue.run(clear_entries, pieces(count, kThreads), kThreads, masked, indices, count);
  return queue.error();
}

// As many threads as there may be entries: how many there are the device knows.
int32_t unmask(const Masked& masked, uint64_t mark, void* stream) noexcept {
  Queue queue(stream);
  queue.run(restore, blocks_of(masked.n), kThreads, masked, mark);
  queue.run(forget, 1, kWarp, masked.undo, mark);
  return queue.error();
}

}  // namespace penstock::kernels::cuda
