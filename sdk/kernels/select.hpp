// Selection by magnitude: the k largest entries, or all above a threshold, with ascending indices.
//
// The order is fixed, whatever the code path: greater magnitude first, between equal magnitudes the
// lower index; a NaN counts as magnitude zero. Magnitudes are compared as bits, so subnormal
// numbers count under any rounding or flushing mode. Where only indices are wanted, `values` is
// null. Nothing here allocates; all functions are [any].
#pragma once

#include <kernels/code_path.hpp>
#include <kernels/fold.hpp>

#include <cstdint>
#include <span>

namespace penstock::kernels {

// Where a selection works: at least the planned bytes, aligned to 64, contents undefined. More room
// than planned is used; with less than planned, but at least kSelectFixedBytes, the result is the
// same and comes more slowly.
struct SelectScratch {
  void* data;
  uint64_t bytes;
};
inline constexpr uint64_t kSelectFixedBytes = 32 * 1024;

// Bytes of scratch for k of n entries. For several segments in one selection the sum over the
// segments is enough.
uint64_t select_scratch_bytes(uint64_t n, uint64_t k) noexcept;

// The code path that compacts fastest here: measured once per process, on first use, in about a
// millisecond. A `name` that runs here ("portable", "avx2", "avx512") is taken without measuring.
CodePath select_code_path(std::string_view name) noexcept;

// Writes the k <= n < 2^32 entries of largest magnitude of x[n]: indices ascending, values as they
// are.
void select_largest(const float* x, uint64_t n, uint64_t k, uint32_t* indices, float* values,
                    SelectScratch scratch, CodePath path) noexcept;

// The same, and zeroes the chosen entries in work.
void take_largest(float* work, uint64_t n, uint64_t k, uint32_t* indices, float* values,
                  SelectScratch scratch, CodePath path) noexcept;

// One of several arrays that compete in one selection. `indices` and `values` have room for
// min(n, k) entries; `count` is set to how many were chosen here. With `fold`, whose work is x, the
// array is compensated first, in the same sweep and with the same bits (fold.hpp); it is null
// afterwards.
struct SelectSegment {
  const float* x;
  uint64_t n;
  uint32_t* indices;
  float* values;
  uint64_t count = 0;
  const Fold* fold = nullptr;
};

// The k largest entries across all segments, k <= sum of n < 2^32; ties go to the earlier segment.
void select_largest(std::span<SelectSegment> segments, uint64_t k, SelectScratch scratch,
                    CodePath path) noexcept;

// The entries with |x| >= threshold; where more than `capacity` pass, the `capacity` largest.
// Returns how many were written. Zero entries never pass. Plan scratch for (n, capacity).
uint64_t select_above(const float* x, uint64_t n, float threshold, uint64_t capacity,
                      uint32_t* indices, float* values, SelectScratch scratch,
                      CodePath path) noexcept;

// The same of a segment that may have a fold; sets its count.
void select_above(SelectSegment& segment, float threshold, uint64_t capacity, SelectScratch scratch,
                  CodePath path) noexcept;

// The same, and zeroes the chosen entries in work: what does not fit stays there.
uint64_t take_above(float* work, uint64_t n, float threshold, uint64_t capacity, uint32_t* indices,
                    float* values, SelectScratch scratch, CodePath path) noexcept;

// counts[j] = number of entries with |x| >= thresholds[j], in one pass over x for all of them. Zero
// entries never count. Fastest where few entries reach the lowest threshold; statistics.hpp counts
// and sums in the same pass.
void count_above(const float* x, uint64_t n, std::span<const float> thresholds, uint64_t* counts,
                 CodePath path) noexcept;

// The k-th largest magnitude among x[0], x[stride], ..., x[(n - 1) stride], 1 <= k <= n. `keys` has
// room for n entries.
float kth_magnitude(const float* x, uint64_t n, uint64_t stride, uint64_t k, uint32_t* keys,
                    SelectScratch scratch) noexcept;

}  // namespace penstock::kernels
