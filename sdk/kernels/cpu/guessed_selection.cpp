// See guessed_selection.hpp. One compaction collects the entries that reach the guess. A bisection
// then looks for a threshold that exactly k of them reach: they are few, so that to count them
// takes a few instructions, and about ten counts suffice.
#include <kernels/guessed_selection.hpp>

#include <algorithm>

#include <kernels/cpu/compact.hpp>
#include <kernels/cpu/radix_select.hpp>

namespace penstock::kernels {
namespace {

constexpr uint64_t kCounted = 16;  // entries that are counted together
static_assert(kCounted <= kCompactPad);
static_assert(guessed_scratch_bytes(0) == kCompactPad * 2 * sizeof(uint32_t));

// The threshold of the k largest of `count` > k entries, all of which reach `lowest`. If exactly k
// entries reach it, its ties are k.
ExactThreshold threshold_of(const uint32_t* bits, uint64_t count, uint64_t k, uint32_t lowest,
                            Reach reach) {
  constexpr uint32_t kFirstStep = 1u << 16;  // the last bits of a key: less than a hundredth
  uint32_t low = lowest, high = lowest;      // more than k entries reach low, fewer reach high
  uint64_t above = 0;                        // how many reach high
  for (uint32_t step = kFirstStep;; step *= 2) {
    high = std::min(low + step, kInfinityKey + 1);
    above = reach(bits, count, high);
    if (above == k) return {high, k};
    if (above < k) break;
    low = high;
  }
  while (high - low > 1) {
    const uint32_t middle = low + (high - low) / 2;
    const uint64_t reached = reach(bits, count, middle);
    if (reached == k) return {middle, k};
    (reached > k ? low : high) = middle;
    if (reached < k) above = reached;
  }
  return {low, k - above};
}

}  // namespace

GuessedSelection select_by_guess(const float* x, uint64_t n, uint64_t stride, uint64_t k,
                                 float guess, uint64_t most, SelectScratch scratch,
                                 CodePath path) noexcept {
  const uint32_t lowest = threshold_key(guess);
  auto* const indices = static_cast<uint32_t*>(scratch.data);
  uint32_t* const bits = indices + most + kCompactPad;
  if (lowest > kInfinityKey) return {};
  uint64_t count = compact_on(path)(x, n, stride, 0, lowest, indices, bits, 0, most);
  if (count < k || count > most) return {};
  if (count == k) return {indices, bits, std::bit_cast<float>(lowest)};
  std::fill_n(bits + count, kCounted, 0u);
  const ExactThreshold exact = threshold_of(bits, count, k, lowest, reach_on(path));
  count = keep_on(path)(indices, bits, count, exact.threshold);
  if (count > k) drop_later_ties(indices, bits, count, exact.threshold, exact.ties);
  return {indices, bits, std::bit_cast<float>(exact.threshold)};
}

}  // namespace penstock::kernels
