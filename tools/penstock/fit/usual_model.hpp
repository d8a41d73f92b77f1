// A model of usual shapes, for what is told of a scheme without a run.
#pragma once

#include "core/fit/gradient.hpp"

#include <vector>

namespace penstock {

// Sixteen matrices of 1024 by 1024, as many kernels of 256 by 256 by 3 by 3, and a bias for each of
// them; 106 MB of float32.
std::vector<DeclaredGradient> usual_model();

}  // namespace penstock
