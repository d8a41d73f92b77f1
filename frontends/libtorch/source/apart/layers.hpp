// The fragments of a model: layer l belongs to fragment l mod F, so every fragment has layers of
// every depth (the strided pattern of Streaming DiLoCo). No torch is needed.
#ifndef PENSTOCK_LIBTORCH_APART_LAYERS_HPP
#define PENSTOCK_LIBTORCH_APART_LAYERS_HPP

#include <cstddef>
#include <string>
#include <vector>

namespace penstock::torch {

// The name of the layer to which a parameter belongs: up to the first number in the name, such as
// "blocks.3" of "blocks.3.mlp.weight". Without a number, the name of the module.
std::string layer_of(const std::string& name);

// For each fragment the places of its parameters in `names`, ascending. Throws if there are fewer
// layers than fragments.
std::vector<std::vector<std::size_t>> fragments_of(const std::vector<std::string>& names,
                                                   std::size_t fragments);

}  // namespace penstock::torch

#endif  // PENSTOCK_LIBTORCH_APART_LAYERS_HPP
