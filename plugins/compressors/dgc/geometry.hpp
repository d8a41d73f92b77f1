// The number of entries that DGC sends of a gradient, and the entries that it samples for the
// threshold.
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
  bool exact;     // true: no sample, the k largest entries are sent
  uint64_t stride;
  uint64_t samples;       // at least; one more if the start lies before the last partial stride
  uint64_t sampled_kept;  // the threshold is the sample with this rank by magnitude, from 1

  uint64_t most_samples() const { return numel / stride + 1; }
};

// The sample is a share `sample_ratio` of the entries, or larger, so that two entries above the
// threshold are expected in it. Strides are 1 modulo 8, so they are odd: otherwise the samples of a
// power-of-two matrix would all lie in a few columns.
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
