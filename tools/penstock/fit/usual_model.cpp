#include "tools/penstock/fit/usual_model.hpp"

#include <fmt/format.h>

namespace penstock {

std::vector<DeclaredGradient> usual_model() {
  constexpr int kLayersOfAShape = 16;
  std::vector<DeclaredGradient> model;
  const auto add = [&](std::string name, std::vector<int64_t> shape) {
    model.emplace_back(std::move(name), model.size(), std::move(shape));
  };
  for (int i = 0; i < kLayersOfAShape; ++i) {
    add(fmt::format("linear{}.weight", i), {1024, 1024});
    add(fmt::format("linear{}.bias", i), {1024});
    add(fmt::format("convolution{}.weight", i), {256, 256, 3, 3});
    add(fmt::format("convolution{}.bias", i), {256});
  }
  return model;
}

}  // namespace penstock
