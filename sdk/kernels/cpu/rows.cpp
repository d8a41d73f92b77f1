// See rows.hpp.
//
// A row is cut into groups. The k-th largest of the groups' maxima is a bound that always at least
// k entries reach, and few more: for n groups about n ln(n / (n - k)). One compaction collects
// these entries, in order, and the k largest are found among them.
#include <kernels/rows.hpp>

#include <algorithm>

#include <kernels/cpu/compact.hpp>
#include <kernels/prefetch.hpp>

namespace penstock::kernels {
namespace {

constexpr int32_t kInfinity = static_cast<int32_t>(kInfinityKey);
constexpr uint64_t kFewestGroups = 64;
constexpr uint64_t kMostGroups = 4096;
constexpr uint64_t kSweep = 16;  // keys that are compared at a time
static_assert(kSweep <= kCompactPad);

struct Job {
  const float* x;
  uint64_t rows;
  uint64_t width;
  uint64_t k;
  uint32_t* indices;
};

struct Workspace {
  int32_t* groups;    // [kMostGroups]
  uint32_t* indices;  // [width + kCompactPad]
  int32_t* keys;      // [width + kCompactPad]
};

// The number of groups: two to four times k, so that few more than k entries reach the bound. It is
// 0 if that would be most of the row; all entries but zeros are candidates then.
uint64_t groups_for(uint64_t width, uint64_t k) {
  uint64_t n_groups = kFewestGroups;
  while (n_groups < 4 * k && n_groups < kMostGroups && 4 * n_groups <= width) n_groups *= 2;
  return n_groups <= width && 2 * k <= n_groups ? n_groups : 0;
}

// Chooses all `count` < k entries that are not zero, and zeros from the front of the row, to give k
// entries.
void fill_with_zeros(const uint32_t* indices, uint64_t count, uint32_t offset, uint64_t k,
                     uint32_t* chosen) {
  uint64_t zeros = k - count;
  uint32_t position = offset;
  uint64_t n = 0;
  for (uint64_t j = 0; j < count; ++j) {
    for (; position < indices[j] && zeros > 0; --zeros) chosen[n++] = position++;
    chosen[n++] = indices[j];
    position = indices[j] + 1;
  }
  for (; zeros > 0; --zeros) chosen[n++] = position++;
}

#define PENSTOCK_BODY "rows_body.inc"
#include <kernels/cpu/each_path.inc>

}  // namespace

uint64_t select_rows_scratch_bytes(uint64_t width, uint32_t n_threads) noexcept {
  const uint64_t entries = kMostGroups + 2 * (width + kCompactPad);
  return n_threads * ((entries * sizeof(uint32_t) + 63) / 64 * 64);
}

void select_rows(const float* x, uint64_t rows, uint64_t width, uint64_t k, uint32_t* indices,
                 float* values, SelectScratch scratch, const Execution& on) noexcept {
  if (k == 0 || width == 0) return;
  const auto select = PENSTOCK_OF_PATH(on.path, select);
  // Blocks of rows, so that the values are read while they are in the cache.
  constexpr uint64_t kBlockEntries = 16 * 1024;
  const uint64_t block = std::max<uint64_t>(1, kBlockEntries / width);
  const uint64_t of_thread = select_rows_scratch_bytes(width);
  const auto share = [&](uint32_t part, uint64_t begin, uint64_t end) {
    char* const room = static_cast<char*>(scratch.data) + part * of_thread;
    auto* const groups = reinterpret_cast<int32_t*>(room);
    auto* const candidates = reinterpret_cast<uint32_t*>(groups + kMostGroups);
    const Workspace work{groups, candidates,
                         reinterpret_cast<int32_t*>(candidates + width + kCompactPad)};
    for (uint64_t row = begin; row < end; row += block) {
      const uint64_t size = std::min(block, end - row);
      uint32_t* const chosen = indices + row * k;
      select({x + row * width, size, width, k, chosen}, work, compact_on(on.path));
      const auto offset = static_cast<uint32_t>(row * width);
      for (uint64_t j = 0; j < size * k; ++j) chosen[j] += offset;
      if (values != nullptr)
        for (uint64_t j = 0; j < size * k; ++j) values[row * k + j] = x[chosen[j]];
    }
  };
  on.workers.for_rows(rows, width, 1, share, scratch.bytes / of_thread);
}

}  // namespace penstock::kernels
