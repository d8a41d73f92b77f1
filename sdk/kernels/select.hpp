// Selection by magnitude: the k largest entries, or all entries above a threshold, with ascending
// indices.
//
// The order is equal on every code path: greater magnitude first, between equal magnitudes the
// lower index; a NaN counts as magnitude zero. Magnitudes are compared as bits, so subnormal
// numbers count under any rounding or flushing mode. If only indices are wanted, `values` is null.
// No function allocates; all functions are [any].
#pragma once

#include <kernels/code_path.hpp>
#include <kernels/fold.hpp>
#include <kernels/prefetch.hpp>

#include <cstdint>
#include <span>

namespace penstock::kernels {

// The scratch memory of a selection: at least the planned bytes, aligned to 64, contents undefined.
// Room beyond the planned bytes is used too. With fewer bytes, but at least kSelectFixedBytes, the
// result is equal and takes longer.
struct SelectScratch {
  void* data;
  uint64_t bytes;
};
inline constexpr uint64_t kSelectFixedBytes = 32 * 1024;

// Bytes of scratch to select k of n entries. For several segments in one selection, the sum over
// the segments is enough.
uint64_t select_scratch_bytes(uint64_t n, uint64_t k) noexcept;

// The code path that compacts fastest here: measured once per process, on first use, in about a
// millisecond. A `name` that runs here ("portable", "avx2", "avx512") is taken without measuring.
CodePath select_code_path(std::string_view name) noexcept;

// Writes the k <= n < 2^32 entries of largest magnitude of x[n]: indices ascending, values as they
// are.
void select_largest(const float* x, uint64_t n, uint64_t k, uint32_t* indices, float* values,
                    SelectScratch scratch, CodePath path) noexcept;

// Like select_largest on x = work, and zeroes the chosen entries in work.
void take_largest(float* work, uint64_t n, uint64_t k, uint32_t* indices, float* values,
                  SelectScratch scratch, CodePath path) noexcept;

// An array that competes with other arrays in one selection. `indices` and `values` have room for
// min(n, k) entries; `count` receives the number of entries chosen from this array. With a `fold`,
// whose work must be x, the selection's own sweep compensates the array first, with the bits of
// compensate (fold.hpp), and sets `fold` to null.
struct SelectSegment {
  const float* x;
  uint64_t n;
  uint32_t* indices;
  float* values;
  uint64_t count = 0;
  const Fold* fold = nullptr;

  // One value, as it is after the fold. A caller that reads values far apart prefetches them some
  // 30 values early; a prefetch behind the end has no effect.
  float at(uint64_t i) const { return fold == nullptr ? x[i] : compensated(*fold, i); }
  void fetch(uint64_t i) const {
    if (fold == nullptr)
      prefetch_line(x + i);
    else
      prefetch(*fold, i);
  }
};
inline constexpr uint64_t kFetchedEarly = 32;  // values

// The k largest entries across all segments, k <= sum of n < 2^32; ties go to the earlier segment.
void select_largest(std::span<SelectSegment> segments, uint64_t k, SelectScratch scratch,
                    CodePath path) noexcept;

// Selects the entries with |x| >= threshold; if more than `capacity` pass, the `capacity` largest.
// Returns how many were written. Zero entries never pass. Plan scratch for (n, capacity).
uint64_t select_above(const float* x, uint64_t n, float threshold, uint64_t capacity,
                      uint32_t* indices, float* values, SelectScratch scratch,
                      CodePath path) noexcept;

// select_above for a segment, which may have a fold; sets the segment's count.
void select_above(SelectSegment& segment, float threshold, uint64_t capacity, SelectScratch scratch,
                  CodePath path) noexcept;

// Like select_above on x = work, and zeroes the chosen entries in work; entries beyond `capacity`
// stay there.
uint64_t take_above(float* work, uint64_t n, float threshold, uint64_t capacity, uint32_t* indices,
                    float* values, SelectScratch scratch, CodePath path) noexcept;

// counts[j] = number of entries with |x| >= thresholds[j], in one pass over x for all thresholds.
// Zero entries never count. It is fastest if few entries reach the lowest threshold. To count and
// sum in one pass, use statistics.hpp.
void count_above(const float* x, uint64_t n, std::span<const float> thresholds, uint64_t* counts,
                 CodePath path) noexcept;

// The k-th largest magnitude among x[0], x[stride], ..., x[(n - 1) stride], 1 <= k <= n. `keys` has
// room for n entries.
float kth_magnitude(const float* x, uint64_t n, uint64_t stride, uint64_t k, uint32_t* keys,
                    SelectScratch scratch) noexcept;

}  // namespace penstock::kernels
