// Compiles the low-rank loops of low_rank_body.inc once per code path.
#include "low_rank_paths.hpp"

#include <kernels/cpu/doubles.hpp>

#include <algorithm>
#include <cstring>

namespace penstock::kernels::low_rank {

#define PENSTOCK_BODY "low_rank_body.inc"
#include <kernels/cpu/each_path.inc>

const PathTable& path_table(CodePath path) noexcept {
  return PENSTOCK_OF_PATH(path, kTable);
}

}  // namespace penstock::kernels::low_rank
