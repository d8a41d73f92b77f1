// The arithmetic of each form of a memory (fold.hpp) for one element: each function returns the new
// work, and updates u if the form has momentum. Internal to the kernels, for both the CPU and CUDA.
#pragma once

#include <kernels/fold.hpp>

namespace penstock::kernels {

[[gnu::always_inline]] constexpr float affine(const Fold& fold, float work, float grad) {
  return fold.beta * work + fold.gamma * (grad * fold.unscale);
}
[[gnu::always_inline]] constexpr float heavy_ball(const Fold& fold, float work, float grad,
                                                  float& u) {
  u = fold.beta * u + grad * fold.unscale;
  return work + u;
}
[[gnu::always_inline]] constexpr float nesterov(const Fold& fold, float work, float grad,
                                                float& u) {
  const float g = grad * fold.unscale;
  u = fold.beta * (u + g);
  return work + u + g;
}

}  // namespace penstock::kernels
