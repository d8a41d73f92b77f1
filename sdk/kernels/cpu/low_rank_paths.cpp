// Builds the low-rank loops once per code path from one text.
#include "low_rank_paths.hpp"

#include <algorithm>
#include <cstring>

namespace penstock::kernels::low_rank {

// The tiles are what fits the registers: 16 of 4 floats, 16 of 8, 32 of 16.
namespace portable {
constexpr uint64_t kWidth = 4, kTileRows = 1, kTileCols = 2, kDotRows = 1, kDotCols = 1;
#include "low_rank_body.inc"
}  // namespace portable

#if defined(__x86_64__)
#pragma GCC push_options
#pragma GCC target("avx2")
namespace avx2 {
constexpr uint64_t kWidth = 8, kTileRows = 2, kTileCols = 2, kDotRows = 2, kDotCols = 1;
#include "low_rank_body.inc"
}  // namespace avx2
#pragma GCC pop_options

#pragma GCC push_options
#pragma GCC target("avx2,avx512f")
namespace avx512 {
constexpr uint64_t kWidth = 16, kTileRows = 4, kTileCols = 4, kDotRows = 4, kDotCols = 2;
#include "low_rank_body.inc"
}  // namespace avx512
#pragma GCC pop_options
#endif

const PathTable& path_table(CodePath path) noexcept {
#if defined(__x86_64__)
  if (path == CodePath::kAvx2) return avx2::kTable;
  if (path == CodePath::kAvx512) return avx512::kTable;
#endif
  (void)path;
  return portable::kTable;
}

}  // namespace penstock::kernels::low_rank
