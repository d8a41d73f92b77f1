// What an optimizer of torch holds, as the exchange needs it: parameters with names, and options.
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
  std::size_t group;  // number of its group in the optimizer
};

// The optimizer's parameters in the order of `named`; others in `named` are left out. Throws where
// one of the optimizer's has no name there.
std::vector<NamedParameter> name_parameters(::torch::optim::Optimizer& optimizer,
                                            const NamedTensors& named);

// How many parameters the optimizer has in all groups.
std::size_t count_parameters(::torch::optim::Optimizer& optimizer);

// True when the optimizer averages gradients over steps itself (momentum of SGD and RMSprop, first
// beta of Adam and AdamW). False for options of another type, which cannot be asked.
bool has_momentum(::torch::optim::Optimizer& optimizer);

// The learning rate of each group; empty where its options have none.
std::vector<std::optional<double>> learning_rates(::torch::optim::Optimizer& optimizer);

}  // namespace penstock::torch

#endif  // PENSTOCK_LIBTORCH_PARAMETERS_HPP
