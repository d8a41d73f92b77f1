// The usual model: gradients of common shapes, for predictions about a scheme without a run.
#pragma once

#include "core/fit/gradient.hpp"

#include <vector>

namespace penstock {

// Returns 16 matrices of 1024 by 1024, 16 kernels of 256 by 256 by 3 by 3, and a bias for each
// matrix and kernel: 106 MB of float32.
std::vector<DeclaredGradient> usual_model();

}  // namespace penstock
