// What the ranks agree on before the first gradient of an optimizer leaves: that they train the
// same parameters.
#ifndef PENSTOCK_LIBTORCH_FIRST_STEP_HPP
#define PENSTOCK_LIBTORCH_FIRST_STEP_HPP

#include "parameters.hpp"

#include <string>
#include <vector>

namespace penstock::torch {

// One small message, once: a checksum of all parameters of each rank. Only when these differ, one
// of each parameter follows, to name the first that differs. Collective. Throws on every rank where
// parameters differ. compare: false sends, and asks, nothing of the parameters.
void agree_on_parameters(const std::string& set_name, const std::vector<NamedParameter>& named,
                         bool compare, const Ranks& ranks);

}  // namespace penstock::torch

#endif  // PENSTOCK_LIBTORCH_FIRST_STEP_HPP
