// How many entries DGC sends of a gradient, and which ones it samples for the threshold.
#pragma once

#include <methods/density.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace dgc {

using penstock::sdk::kept_count;

struct Geometry {
  uint64_t numel;
  uint64_t kept;  // entries to send
  bool exact;     // no sample: the k largest
  uint64_t stride;
  uint64_t samples;       // at least; a start before the last partial stride gives one more
  uint64_t sampled_kept;  // the threshold is this largest of the samples

  uint64_t most_samples() const { return numel / stride + 1; }
};

// The sample has a share `sample_ratio` of the entries, and two entries above the threshold are
// expected in it. Strides are 1 modulo 8: odd, so that they do not meet the same column of a
// power-of-two matrix every time.
inline Geometry geometry_of(uint64_t n, double density, double sample_ratio) {
  Geometry geometry{n, kept_count(n, density), true, 1, n, kept_count(n, density)};
  const auto least = static_cast<uint64_t>(std::ceil(2 / density - 1e-9));
  if (density == 1 || sample_ratio == 1 || n <= least) return geometry;
  const uint64_t need = std::max(kept_count(n, sample_ratio), least);
  geometry.exact = false;
  geometry.stride = 32 * ((n + 32 * need - 1) / (32 * need)) + 1;
  geometry.samples = n / geometry.stride;
  while (geometry.samples < need) {
    geometry.stride -= 8;
    geometry.samples = n / geometry.stride;
  }
  geometry.sampled_kept = kept_count(geometry.samples, density);
  geometry.exact = geometry.stride == 1;
  return geometry;
}

}  // namespace dgc
