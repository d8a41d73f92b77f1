// What the examples share: the loop, files of weights and losses, and how a program ends.
#ifndef PENSTOCK_LIBTORCH_EXAMPLE_TRAINING_HPP
#define PENSTOCK_LIBTORCH_EXAMPLE_TRAINING_HPP

#include <torch/torch.h>
#include <penstock/torch.hpp>

#include <cstdint>
#include <functional>

#include "options.hpp"

namespace example {

// Trains `network` with SGD as the options say, `loss_of` giving the loss of this rank in a step.
// Rank 0 shows it, writes what the options ask for, and says at the end what `result` tells of the
// network.
void train(torch::nn::Module& network, const Options& options,
           const std::function<torch::Tensor(std::int64_t step)>& loss_of,
           const std::function<std::string()>& result);

// The body of main(): reads the options, opens and closes the runtime around `run`, tells what went
// wrong. Returns the status of the program.
int run_program(const Program& program, int count, char** words, void (*run)(const Options&));

}  // namespace example

#endif  // PENSTOCK_LIBTORCH_EXAMPLE_TRAINING_HPP
