// What each form of a memory leaves in one element of work, and of u where it has momentum
// (fold.hpp). Internal to the kernels, for the CPU and CUDA alike.
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
