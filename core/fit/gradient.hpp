// The frontend's declaration of a gradient.
#pragma once

#include "core/config/config.hpp"
#include "core/tensor/dtype.hpp"
#include "core/tensor/place.hpp"

#include <penstock/runtime.h>

#include <string>
#include <vector>

namespace penstock {

// Fixed for the life of a set.
struct DeclaredGradient {
  std::string name;
  uint64_t index = 0;
  std::vector<int64_t> shape;
  uint64_t numel = 1;
  uint32_t dtype = PENSTOCK_FLOAT32;
  uint32_t given_bucket = PENSTOCK_NO_BUCKET;
  uint32_t owner = 0;  // the only rank (in the set) that gets the result, if results stay at owners
  Place lies_on;

  DeclaredGradient() = default;
  DeclaredGradient(std::string name, uint64_t index, std::vector<int64_t> extents,
                   uint32_t dtype = PENSTOCK_FLOAT32)
      : name(std::move(name)), index(index), shape(std::move(extents)), dtype(dtype) {
    for (const int64_t extent : shape) numel *= static_cast<uint64_t>(extent);
  }
  uint64_t bytes() const { return numel * dtype_bytes(dtype); }
  // The facts that the rules of a scheme match.
  GradientFacts facts() const { return {name, shape.size(), numel, dtype}; }
};

}  // namespace penstock
