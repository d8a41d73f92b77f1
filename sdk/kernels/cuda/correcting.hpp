// A threshold that rises and falls until the number of entries that reach it lies in a band, on a
// device: the correction of Deep Gradient Compression without a second selection. Contract:
// workspace.hpp.
#pragma once

#include <cstdint>

namespace penstock::kernels::cuda {

// While more entries than `most` reach it, times `rise`; while less than `least`, times `fall`.
struct CorrectionRules {
  float rise, fall;
  double most, least;
  uint32_t rounds;  // corrections, at most
};

inline constexpr uint32_t kCorrectionsAtOnce = 4;  // whose thresholds are counted in one pass
inline constexpr uint32_t kCorrectionProbes = (1u << kCorrectionsAtOnce) - 1;

// In device memory.
struct Correcting {
  uint64_t counts[kCorrectionProbes];
  // What a threshold may become, as a tree: behind that at i come the risen one at 2 i + 1 and the
  // fallen one at 2 i + 2.
  float probes[kCorrectionProbes];
  float threshold;  // the first one, and in the end the one that was found
};

// Corrects s->threshold for x[n], in a pass over x for every four rounds; once it is found the rest
// reads nothing.
[[nodiscard]] int32_t correct(const float* x, uint64_t n, const CorrectionRules& rules,
                              Correcting* s, void* stream) noexcept;

}  // namespace penstock::kernels::cuda
