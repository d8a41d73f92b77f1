// Stores that go past the caches. Data that is larger than the caches has left them before it is
// read again; a plain store would fetch each of its lines first, which is half of all traffic.
#pragma once

#include <algorithm>
#include <cstdint>

namespace penstock::kernels {

// Results of at least this many bytes are streamed. Measured: at 4 MiB, writing and reading again
// is faster through the caches; at 64 MiB, past them.
inline constexpr uint64_t kStreamedBytes = uint64_t{16} << 20;

// Elements that a kernel computes before it streams them: they stay in the first-level cache.
inline constexpr uint64_t kStreamTile = 2048;

// to[count] <- from[count].
void stream(float* to, const float* from, uint64_t count) noexcept;

// A kernel calls this after its last stream. Another thread may then read the result once it learns
// that this thread is done.
void end_stream() noexcept;

// Calls compute(target, first, count) for [0, numel): once with the result itself as target, or
// tile by tile with a buffer that is then streamed to the result. `together`: the elements of all
// results that are written before the first result is read again, if they are more than numel.
template <typename Compute>
void compute_streamed(float* out, uint64_t numel, Compute compute, uint64_t together = 0) {
  if (std::max(numel, together) * sizeof(float) < kStreamedBytes || numel < kStreamTile)
    return compute(out, 0, numel);
  alignas(64) float tile[kStreamTile];
  for (uint64_t first = 0; first < numel; first += kStreamTile) {
    const uint64_t count = numel - first < kStreamTile ? numel - first : kStreamTile;
    compute(tile, first, count);
    stream(out + first, tile, count);
  }
  end_stream();
}

}  // namespace penstock::kernels
