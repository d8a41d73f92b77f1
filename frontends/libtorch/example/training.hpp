// The common parts of the examples: the training loop, files of weights and losses, and the end of
// a program.
#ifndef PENSTOCK_LIBTORCH_EXAMPLE_TRAINING_HPP
#define PENSTOCK_LIBTORCH_EXAMPLE_TRAINING_HPP

#include <torch/torch.h>
#include <penstock/torch.hpp>

#include <cstdint>
#include <functional>

#include "options.hpp"

namespace example {

// Trains `network` with SGD as the options state; `loss_of` returns this rank's loss in a step.
// Rank 0 prints the loss, writes the files that the options name, and at the end prints the text
// that `result` returns about the network.
void train(torch::nn::Module& network, const Options& options,
           const std::function<torch::Tensor(std::int64_t step)>& loss_of,
           const std::function<std::string()>& result);

// The body of main(): reads the options, opens the runtime, calls `run`, closes the runtime, and
// prints the error if there is one. Returns the exit status of the program.
int run_program(const Program& program, int count, char** words, void (*run)(const Options&));

}  // namespace example

#endif  // PENSTOCK_LIBTORCH_EXAMPLE_TRAINING_HPP
