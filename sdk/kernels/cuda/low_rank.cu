// See low_rank.hpp. Cuts sums into segments and queues the kernels of low_rank.cuh.
#include <kernels/cuda/low_rank.cuh>
#include <kernels/cuda/low_rank.hpp>

#include <algorithm>

namespace penstock::kernels::cuda::low_rank {
namespace {

constexpr uint64_t kLongest = 0xffffffffu;  // so that no product of two lengths overflows
static_assert(kSegmentFewest % kProductColumns == 0 && kSegmentFewest % kProductRows == 0);

bool is_shape(const Shape& shape) {
  return shape.rank > 0 && shape.rank <= kMostRank && shape.rows <= kLongest &&
         shape.cols <= kLongest;
}

// Whether every array with entries, for this shape, is given.
bool has_arrays(const Shape& shape, const float* m, const float* p, const float* q) {
  return (m != nullptr || shape.rows == 0 || shape.cols == 0) &&
         (p != nullptr || shape.rows == 0) && (q != nullptr || shape.cols == 0);
}

// Calls use.template operator()<kWidth>() with the narrowest kernel for `width` columns.
template <typename Use>
void with_width(uint64_t width, Use&& use) {
  if (width <= 1)
    use.template operator()<1>();
  else if (width <= 2)
    use.template operator()<2>();
  else if (width <= 4)
    use.template operator()<4>();
  else if (width <= 8)
    use.template operator()<8>();
  else if (width <= 16)
    use.template operator()<16>();
  else
    use.template operator()<kProductWidth>();
}

// The tiles of the results, and the segments of the terms of each result.
struct Plan {
  uint64_t tiles;
  uint64_t segments;
  uint64_t segment;
};
// The plan for `results` rows of the resulting factor, each a sum of `terms`.
Plan plan_product(uint64_t results, uint64_t terms, uint64_t tile) {
  const uint64_t tiles = pieces(results, tile);
  const uint64_t wanted =
      std::clamp<uint64_t>(kProductBlocks / std::max<uint64_t>(tiles, 1), 1, kMostSegments);
  const uint64_t segment = pieces(pieces(terms, wanted), kSegmentFewest) * kSegmentFewest;
  return {tiles, terms > 0 ? pieces(terms, segment) : 1, segment};
}
Plan plan_columns(const Shape& shape, bool transposed, uint64_t width) {
  Plan plan{};
  with_width(width, [&]<uint32_t kWidth>() {
    plan = transposed ? plan_product(shape.cols, shape.rows, kTileOfColumns<kWidth>)
                      : plan_product(shape.rows, shape.cols, kTileOfRows<kWidth>);
  });
  return plan;
}

// Calls use(first, width) for each group of factor columns that a kernel handles together.
template <typename Use>
void each_columns(uint64_t rank, Use&& use) {
  for (uint64_t first = 0; first < rank; first += kProductWidth)
    use(first, std::min<uint64_t>(kProductWidth, rank - first));
}

uint64_t product_floats(const Shape& shape, bool transposed) {
  const uint64_t results = transposed ? shape.cols : shape.rows;
  uint64_t most = 0;
  each_columns(shape.rank, [&](uint64_t, uint64_t width) {
    const Plan plan = plan_columns(shape, transposed, width);
    if (plan.segments > 1) most = std::max(most, plan.segments * results * width);
  });
  return most;
}

// Queues the kernels for columns [first, first + width) of the result.
void queue_columns(Queue& queue, const Shape& shape, bool transposed, const float* m,
                   const float* factor, float* result, uint64_t first, uint64_t width, float* sums,
                   const Fold& fold) {
  const Plan plan = plan_columns(shape, transposed, width);
  const uint64_t results = (transposed ? shape.cols : shape.rows) * width;
  const auto rank = static_cast<uint32_t>(shape.rank);
  const auto columns = static_cast<uint32_t>(width);
  const auto segments = static_cast<uint32_t>(plan.segments);
  const bool is_cut = segments > 1;
  const Product job{m,
                    shape.rows,
                    shape.cols,
                    factor + first,
                    rank,
                    columns,
                    segments,
                    plan.segment,
                    is_cut ? sums : result + first,
                    results,
                    is_cut ? columns : rank};
  with_width(width, [&]<uint32_t kWidth>() {
    with_form(fold.form, [&]<uint32_t kForm>() {
      const uint64_t blocks = plan.tiles * segments;
      if (transposed)
        queue.run<transposed_tiles<kWidth, kForm>>(blocks, kProductThreads, job, fold);
      else
        queue.run<multiply_tiles<kWidth, kForm>>(blocks, kProductThreads, job, fold);
    });
  });
  if (is_cut)
    each_element(queue, JoinSegments{sums, results, segments, columns, result + first, rank},
                 results);
}

int32_t product(const Shape& shape, bool transposed, const float* m, const float* factor,
                float* result, const Workspace& workspace, void* stream, const Fold* fold) {
  if (!is_shape(shape)) return cudaErrorInvalidValue;
  const bool has_entries = shape.rows > 0 && shape.cols > 0;
  if (has_entries && fold != nullptr && (!can_fold(*fold) || fold->work != m))
    return cudaErrorInvalidValue;
  const uint64_t bytes = product_floats(shape, transposed) * sizeof(float);
  if (bytes > 0 && (workspace.data == nullptr || !aligned(workspace.data, 64) ||
                    workspace.bytes < multiply_workspace_bytes(shape)))
    return cudaErrorInvalidValue;
  auto* const sums = static_cast<float*>(workspace.data);
  Fold once = fold == nullptr || !has_entries ? Fold{} : *fold;
  Queue queue(stream);
  each_columns(shape.rank, [&](uint64_t first, uint64_t width) {
    queue_columns(queue, shape, transposed, m, factor, result, first, width, sums, once);
    once = Fold{};  // the next columns find the matrix compensated
  });
  return queue.error();
}

template <bool kTakeOut>
int32_t expand_into(const Shape& shape, float* target, const float* p, const float* q, float scale,
                    void* stream) {
  if (!is_shape(shape) || !has_arrays(shape, target, p, q)) return cudaErrorInvalidValue;
  Queue queue(stream);
  queue.run<expand_tiles<kTakeOut>>(
      pieces(shape.rows, kProductRows) * pieces(shape.cols, kProductColumns), kProductThreads,
      target, shape.rows, shape.cols, static_cast<uint32_t>(shape.rank), p, q, scale);
  return queue.error();
}

}  // namespace

uint64_t multiply_workspace_bytes(const Shape& shape) noexcept {
  if (!is_shape(shape)) return 0;
  return std::max(product_floats(shape, false), product_floats(shape, true)) * sizeof(float);
}

int32_t multiply(const Shape& shape, const float* m, const float* q, float* p, Workspace workspace,
                 void* stream, const Fold* fold) noexcept {
  if (!has_arrays(shape, m, p, q)) return cudaErrorInvalidValue;
  return product(shape, false, m, q, p, workspace, stream, fold);
}

int32_t multiply_transposed(const Shape& shape, const float* m, const float* p, float* q,
                            Workspace workspace, void* stream, const Fold* fold) noexcept {
  if (!has_arrays(shape, m, p, q)) return cudaErrorInvalidValue;
  return product(shape, true, m, p, q, workspace, stream, fold);
}

int32_t take_out(const Shape& shape, float* m, const float* p, const float* q,
                 void* stream) noexcept {
  return expand_into<true>(shape, m, p, q, 1.0f, stream);
}

int32_t expand(const Shape& shape, const float* p, const float* q, float scale, float* out,
               void* stream) noexcept {
  return expand_into<false>(shape, out, p, q, scale, stream);
}

}  // namespace penstock::kernels::cuda::low_rank
