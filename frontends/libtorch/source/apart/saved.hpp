// The state of ranks that train apart, on one rank: anchors, outer momentum, the place in the
// round, the state of compression, and an exchange under way with its results, which its landing
// will apply.
#ifndef PENSTOCK_LIBTORCH_APART_SAVED_HPP
#define PENSTOCK_LIBTORCH_APART_SAVED_HPP

#include <torch/serialize/archive.h>

#include "rounds.hpp"

namespace penstock::torch {

// Writes the state of this rank into `archive`. Waits for an exchange under way, which goes on
// afterwards. The archive gets copies.
void write_state(Rounds& rounds, ::torch::serialize::OutputArchive& archive);

// Restores a state that write_state() wrote on this rank; throws an exchange under way away. Every
// rank must call it. Throws for the state of other settings or of another model, before anything
// changes.
void read_state(Rounds& rounds, ::torch::serialize::InputArchive& archive);

}  // namespace penstock::torch

#endif  // PENSTOCK_LIBTORCH_APART_SAVED_HPP
