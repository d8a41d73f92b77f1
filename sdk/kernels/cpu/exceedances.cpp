// See exceedances.hpp.
#include <kernels/exceedances.hpp>
#include <kernels/stream.hpp>

#include <algorithm>
#include <cstring>

namespace penstock::kernels {
namespace {

constexpr uint64_t kLanes = 16;
constexpr uint64_t kTile = uint64_t{1} << 20;  // lanes of 32 bits can count this many

typedef float Floats __attribute__((vector_size(64)));
typedef int32_t Ints __attribute__((vector_size(64)));
typedef float HalfFloats __attribute__((vector_size(32)));
typedef double Doubles __attribute__((vector_size(64)));

struct Lanes {
  Doubles sums[2] = {};
  Doubles squares[2] = {};
  uint64_t count = 0;
};

// n is a multiple of 16.
[[gnu::always_inline]] inline void add_tile(const float* x, uint64_t n, float threshold,
                                            Lanes& all) {
  Doubles sums[2] = {all.sums[0], all.sums[1]};
  Doubles squares[2] = {all.squares[0], all.squares[1]};
  Ints counts = {};
  for (uint64_t i = 0; i < n; i += kLanes) {
    Ints bits;
    std::memcpy(&bits, x + i, sizeof bits);
    bits &= 0x7fffffff;
    Floats excess;
    std::memcpy(&excess, &bits, sizeof excess);
    excess -= threshold;
    excess = excess > 0.0f ? excess : Floats{};
    counts -= excess > 0.0f;
    HalfFloats halves[2];
    std::memcpy(halves, &excess, sizeof excess);
    for (int half = 0; half < 2; ++half) {
      const Doubles wide = __builtin_convertvector(halves[half], Doubles);
      sums[half] += wide;
      squares[half] += wide * wide;
    }
  }
  for (int half = 0; half < 2; ++half) {
    all.sums[half] = sums[half];
    all.squares[half] = squares[half];
  }
  for (uint64_t lane = 0; lane < kLanes; ++lane) all.count += static_cast<uint64_t>(counts[lane]);
}

using Tile = void (*)(const float* x, uint64_t n, float threshold, Lanes& lanes);

void tile_portable(const float* x, uint64_t n, float threshold, Lanes& lanes) {
  add_tile(x, n, threshold, lanes);
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) void tile_avx2(const float* x, uint64_t n, float threshold,
                                               Lanes& lanes) {
  add_tile(x, n, threshold, lanes);
}
__attribute__((target("avx512f"))) void tile_avx512(const float* x, uint64_t n, float threshold,
                                                    Lanes& lanes) {
  add_tile(x, n, threshold, lanes);
}
#endif

Tile tile_on(CodePath path) {
#if defined(__x86_64__)
  if (path == CodePath::kAvx2) return tile_avx2;
  if (path == CodePath::kAvx512) return tile_avx512;
#endif
  (void)path;
  return tile_portable;
}

double join(const Doubles* sums) {
  double lanes[kLanes];
  std::memcpy(lanes, sums, sizeof lanes);
  for (uint64_t width = kLanes / 2; width > 0; width /= 2)
    for (uint64_t lane = 0; lane < width; ++lane) lanes[lane] += lanes[lane + width];
  return lanes[0];
}

}  // namespace

Exceedances exceedances(const float* x, uint64_t n, float threshold, CodePath path,
                        const Fold* fold) noexcept {
  const Tile tile = tile_on(path);
  alignas(64) float room[kFoldTile];
  Lanes lanes;
  const uint64_t step = fold == nullptr ? kTile : kFoldTile;
  for (uint64_t begin = 0; begin < n; begin += step) {
    const uint64_t size = std::min(step, n - begin);
    const float* values =
        fold == nullptr ? x + begin : compensate_tile(fold->from(begin), size, n, path, room);
    const uint64_t whole = size / kLanes * kLanes;
    tile(values, whole, threshold, lanes);
    if (whole == size) continue;
    alignas(64) float rest[kLanes] = {};  // zeros exceed no threshold
    std::memcpy(rest, values + whole, (size - whole) * sizeof(float));
    tile(rest, kLanes, threshold, lanes);
  }
  end_stream();
  return {join(lanes.sums), join(lanes.squares), lanes.count};
}

}  // namespace penstock::kernels
