// See correcting.hpp.
#include <kernels/cuda/correcting.hpp>
#include <kernels/cuda/queue.hpp>
#include <kernels/cuda/reduce.hpp>
#include <kernels/cuda/tuning.hpp>

#include <algorithm>
#include <bit>

namespace penstock::kernels::cuda {
namespace {

constexpr uint32_t n_probes(uint32_t corrections) {
  return (1u << corrections) - 1;
}

__device__ void write_probes(const CorrectionRules& rules, Correcting* s) {
  s->probes[0] = s->threshold;
  for (uint32_t i = 0; 2 * i + 2 < kCorrectionProbes; ++i) {
    s->probes[2 * i + 1] = s->probes[i] * rules.rise;
    s->probes[2 * i + 2] = s->probes[i] * rules.fall;
  }
}

__global__ void __launch_bounds__(kWarp) begin_correcting(CorrectionRules rules, Correcting* s) {
  if (threadIdx.x == 0) write_probes(rules, s);
}

// Goes down the tree by the counts. No entry reaches a probe that is NaN, so the pass that counts
// for such probes reads nothing.
__global__ void __launch_bounds__(kWarp)
    follow_counts(CorrectionRules rules, uint32_t corrections, Correcting* s) {
  if (threadIdx.x != 0 || s->probes[0] != s->probes[0]) return;
  uint32_t at = 0;
  for (uint32_t j = 0; j < corrections; ++j) {
    const auto count = static_cast<double>(s->counts[at]);
    if (count > rules.most) {
      s->threshold *= rules.rise;
      at = 2 * at + 1;
    } else if (count < rules.least) {
      s->threshold *= rules.fall;
      at = 2 * at + 2;
    } else {
      for (float& probe : s->probes) probe = std::bit_cast<float>(0x7fc00000u);
      return;
    }
  }
  write_probes(rules, s);
}

}  // namespace

int32_t correct(const float* x, uint64_t n, const CorrectionRules& rules, Correcting* s,
                void* stream) noexcept {
  if (s == nullptr) return cudaErrorInvalidValue;
  Queue queue(stream);
  if (rules.rounds > 0) queue.run<begin_correcting>(1, kWarp, rules, s);
  for (uint32_t round = 0; round < rules.rounds && queue.error() == 0;
       round += kCorrectionsAtOnce) {
    const uint32_t corrections = std::min(kCorrectionsAtOnce, rules.rounds - round);
    const int32_t error = count_above(x, n, s->probes, n_probes(corrections), s->counts, stream);
    if (error != 0) return error;
    queue.run<follow_counts>(1, kWarp, rules, corrections, s);
  }
  return queue.error();
}

}  // namespace penstock::kernels::cuda
