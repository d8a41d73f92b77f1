// A threshold that rises and falls until the number of entries that reach it lies in a band, on a
// device: the correction of Deep Gradient Compression without a second selection. Contract:
// workspace.hpp.
#pragma once

#include <cstdint>

namespace penstock::kernels::cuda {

// While more than `most` entries reach the threshold, it is multiplied by `rise`; while fewer than
// `least` reach it, by `fall`.
struct CorrectionRules {
  float rise, fall;
  double most, least;
  uint32_t rounds;  // largest number of corrections
};

inline constexpr uint32_t kCorrectionsAtOnce = 4;  // one pass counts for all their thresholds
inline constexpr uint32_t kCorrectionProbes = (1u << kCorrectionsAtOnce) - 1;

// Scratch in device memory.
struct Correcting {
  uint64_t counts[kCorrectionProbes];
  // The thresholds that the corrections may give, as a tree: the threshold at i has its risen
  // threshold at 2 i + 1 and its fallen threshold at 2 i + 2.
  float probes[kCorrectionProbes];
  float threshold;  // in: the first threshold; out: the threshold that was found
};

// Corrects s->threshold for x[n], with one pass over x for every four rounds. Once the threshold is
// found, the remaining passes read nothing.
[[nodiscard]] int32_t correct(const float* x, uint64_t n, const CorrectionRules& rules,
                              Correcting* s, void* stream) noexcept;

}  // namespace penstock::kernels::cuda
