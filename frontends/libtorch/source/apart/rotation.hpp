// The order of exchanges when ranks train apart: which fragment of the parameters starts its
// exchange after which step, and when the result of that exchange is applied. No torch is needed.
//
// Source: Douillard et al., "Streaming DiLoCo with Overlapping Communication", 2025, section 2.
#ifndef PENSTOCK_LIBTORCH_APART_ROTATION_HPP
#define PENSTOCK_LIBTORCH_APART_ROTATION_HPP

#include <cstddef>
#include <cstdint>
#include <optional>

namespace penstock::torch {

// Fragment f of F starts after the steps s with s mod H = (f + 1) H / F, rounded down, and lands D
// steps later.
class Rotation {
 public:
  // every: H, the steps of a round. fragments: F. delay: D, fewer than H / F steps, so that one
  // exchange at most is under way; with 0 an exchange lands in the step in which it starts. Throws
  // for numbers that give no such order.
  Rotation(std::int64_t every, std::int64_t fragments, std::int64_t delay);

  // The fragment that starts its exchange after step number `step` (from 1); empty: no fragment.
  std::optional<std::size_t> starting(std::int64_t step) const;
  // The fragment whose result is applied after step number `step`; empty: no fragment.
  std::optional<std::size_t> landing(std::int64_t step) const { return starting(step - delay); }

  const std::int64_t every, fragments, delay;

 private:
  std::int64_t place_of(std::int64_t fragment) const;
};

}  // namespace penstock::torch

#endif  // PENSTOCK_LIBTORCH_APART_ROTATION_HPP
