// See statistics.hpp. The array is read in tiles that stay in the first-level cache while sums,
// counts and logarithms are computed one after the other. The source fixes the order of additions,
// and contraction is off, so only the width of the registers differs between code paths.
#include <kernels/statistics.hpp>
#include <kernels/stream.hpp>

#include <algorithm>
#include <cstring>

#include <kernels/cpu/count.hpp>
#include <kernels/cpu/doubles.hpp>
#include <kernels/element/logarithm.hpp>
#include <kernels/select.hpp>

namespace penstock::kernels {
namespace {

constexpr uint64_t kTile = 4096;
constexpr uint64_t kLanes = 16;
constexpr int32_t kBitsOfOne = 0x3f800000;

#define PENSTOCK_INLINE [[gnu::always_inline]] static inline

// 16 lanes of each sum, in doubles; integers are exact in any order.
struct Lanes {
  alignas(64) double magnitudes[kLanes] = {};
  alignas(64) double squares[kLanes] = {};
  alignas(64) float largest[kLanes] = {};
  alignas(64) float products[kLanes];  // of mantissas, in [1, 2)
  int64_t nonzero = 0;
  int64_t exponents = 0;
  Lanes() { std::fill_n(products, kLanes, 1.0f); }
};

double join(double* lanes) {
  for (uint64_t width = kLanes / 2; width > 0; width /= 2)
    for (uint64_t lane = 0; lane < width; ++lane) lanes[lane] += lanes[lane + width];
  return lanes[0];
}

double log_of(const Lanes& lanes) {
  double sum = 0;
  for (const float product : lanes.products) sum += log_of_mantissa(double{product});
  return sum + kNaturalLogOfTwo * static_cast<double>(lanes.exponents);
}

#define PENSTOCK_BODY "statistics_body.inc"
#include <kernels/cpu/each_path.inc>

}  // namespace

Statistics statistics(const float* x, uint64_t n, const StatisticsRequest& request,
                      CodePath path) noexcept {
  const auto tile = PENSTOCK_OF_PATH(path, tile);
  Counter counter(request.thresholds, request.counts, path);
  static_assert(kTile <= kMostFolded);
  alignas(64) float room[kTile];
  Lanes lanes;
  for (uint64_t begin = 0; begin < n; begin += kTile) {
    const uint64_t size = std::min(kTile, n - begin);
    const float* values = request.fold == nullptr
                              ? x + begin
                              : compensate_tile(request.fold->from(begin), size, n, path, room);
    const uint64_t whole = size / kLanes * kLanes;
    tile(values, whole, request.logs, lanes);
    if (whole < size) {  // zeros change no result
      alignas(64) float rest[kLanes] = {};
      std::memcpy(rest, values + whole, (size - whole) * sizeof(float));
      tile(rest, kLanes, request.logs, lanes);
    }
    counter.count(values, size);
  }
  end_stream();
  Statistics result;
  result.sum_of_magnitudes = join(lanes.magnitudes);
  result.sum_of_squares = join(lanes.squares);
  if (request.logs) result.sum_of_logs = log_of(lanes);
  result.nonzero = static_cast<uint64_t>(lanes.nonzero);
  for (uint64_t lane = 0; lane < kLanes; ++lane)
    result.largest = std::max(result.largest, lanes.largest[lane]);
  return result;
}

void count_above(const float* x, uint64_t n, std::span<const float> thresholds, uint64_t* counts,
                 CodePath path) noexcept {
  Counter counter(thresholds, counts, path);
  for (uint64_t begin = 0; begin < n; begin += kTile)
    counter.count(x + begin, std::min(kTile, n - begin));
}

}  // namespace penstock::kernels
