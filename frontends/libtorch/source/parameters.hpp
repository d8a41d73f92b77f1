// The parameters of a torch optimizer with their names, and the options that the exchange needs.
#ifndef PENSTOCK_LIBTORCH_PARAMETERS_HPP
#define PENSTOCK_LIBTORCH_PARAMETERS_HPP

#include <ATen/core/Tensor.h>
#include <penstock/torch.hpp>

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace penstock::torch {

struct NamedParameter {
  std::string name;
  at::Tensor tensor;
  std::size_t group;  // number of the parameter's group in the optimizer
};

// The optimizer's parameters in the order of `named`. Tensors of `named` that the optimizer does
// not have are left out. Throws if a parameter of the optimizer has no name in `named`.
std::vector<NamedParameter> name_parameters(::torch::optim::Optimizer& optimizer,
                                            const NamedTensors& named);

// The number of the optimizer's parameters in all groups.
std::size_t count_parameters(::torch::optim::Optimizer& optimizer);

// True if the optimizer itself averages gradients over steps (momentum of SGD and RMSprop, first
// beta of Adam and AdamW). False for other types of options, because this function cannot read
// them.
bool has_momentum(::torch::optim::Optimizer& optimizer);

// The learning rate of each group; empty if the group's options have no learning rate.
std::vector<std::optional<double>> learning_rates(::torch::optim::Optimizer& optimizer);

}  // namespace penstock::torch

#endif  // PENSTOCK_LIBTORCH_PARAMETERS_HPP
