#include "core/tensor/outer_step.hpp"

#include "core/tensor/dtype.hpp"

#include <kernels/on_code_path.hpp>
#include <kernels/stream.hpp>

#include <algorithm>
#include <cstring>

namespace penstock {
namespace {

// Parameters of at least this many bytes go past the caches: the five arrays of a step push them
// out before the next forward reads them.
constexpr uint64_t kStreamed = uint64_t{256} << 10;
constexpr uint64_t kTile = 2048;  // elements; a tile stays in the first-level cache between loops

// One tile of the arrays of a step, from element `first`.
template <typename T>
struct Tile {
  Tile(const penstock_outer_step& step, uint64_t first)
      : anchor(static_cast<T*>(step.anchor) + first),
        drift(static_cast<const T*>(step.drift) + first),
        momentum(step.momentum == nullptr ? nullptr : static_cast<T*>(step.momentum) + first),
        values(step.values == nullptr ? nullptr : static_cast<T*>(step.values) + first),
        count(std::min(kTile, step.count - first)) {}

  T* __restrict anchor;
  const T* __restrict drift;
  T* __restrict momentum;
  T* __restrict values;
  uint64_t count;
};

// The momentum takes the drift up. Returns what moves the anchor: `gradient`, filled, or an array
// of the tile.
template <typename T>
PENSTOCK_LOOP inline const T* gradient_of(const Tile<T>& tile, T factor, bool nesterov,
                                          T* gradient) {
  if (tile.momentum == nullptr) return tile.drift;
  for (uint64_t i = 0; i < tile.count; ++i)
    tile.momentum[i] = tile.momentum[i] * factor + tile.drift[i];
  if (!nesterov) return tile.momentum;
  for (uint64_t i = 0; i < tile.count; ++i) gradient[i] = tile.drift[i] + tile.momentum[i] * factor;
  return gradient;
}

template <typename T>
void copy_out(const Tile<T>& tile, bool streams) {
  if (!streams) {
    std::memcpy(tile.values, tile.anchor, tile.count * sizeof(T));
    return;
  }
  kernels::stream(reinterpret_cast<float*>(tile.values),
                  reinterpret_cast<const float*>(tile.anchor),
                  tile.count * (sizeof(T) / sizeof(float)));
}

template <typename T>
void take_as(const penstock_outer_step& step) {
  const T lr = static_cast<T>(step.lr), factor = static_cast<T>(step.factor);
  const T own = static_cast<T>(step.mix), other = static_cast<T>(1 - step.mix);
  const bool streams = step.count * sizeof(T) >= kStreamed;
  kernels::on_code_path(kernels::widest_code_path(), [&]() PENSTOCK_LOOP {
    alignas(64) T room[kTile];
    for (uint64_t first = 0; first < step.count; first += kTile) {
      const Tile<T> tile(step, first);
      const T* gradient = gradient_of(tile, factor, step.nesterov != 0, room);
      for (uint64_t i = 0; i < tile.count; ++i) tile.anchor[i] -= gradient[i] * lr;
      if (tile.values == nullptr) continue;
      if (own == 0) {
        copy_out(tile, streams);
      } else {
        for (uint64_t i = 0; i < tile.count; ++i)
          tile.values[i] = tile.values[i] * own + tile.anchor[i] * other;
      }
    }
  });
  kernels::end_stream();
}

}  // namespace

Status take_outer_step(const penstock_outer_step& step) {
  if (step.count > 0 && (step.anchor == nullptr || step.drift == nullptr))
    return invalid_argument("an outer step has no {}", step.anchor == nullptr ? "anchor" : "drift");
  if (step.dtype == PENSTOCK_FLOAT32) {
    take_as<float>(step);
  } else if (step.dtype == PENSTOCK_FLOAT64) {
    take_as<double>(step);
  } else {
    return invalid_argument("an outer step has the element type {}, expected float32 or float64",
                            dtype_name(step.dtype));
  }
  return {};
}

}  // namespace penstock
