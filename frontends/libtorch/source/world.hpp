// The one runtime of this process, for the other files of the frontend.
#ifndef PENSTOCK_LIBTORCH_WORLD_HPP
#define PENSTOCK_LIBTORCH_WORLD_HPP

#include "door.hpp"

#include <memory>
#include <string>
#include <vector>

namespace penstock::torch {

// The open runtime; throws before init() and after shutdown().
penstock_runtime* current();

// Makes the next set, named after its `kind`. The set ends with the runtime at the latest.
// `scheme`: TOML text, or the path of a .toml file; empty: the scheme of the configuration.
// `agreement`: lines that must be equal on all ranks of the set. Collective.
std::shared_ptr<GradientSet> create_set(const std::string& kind,
                                        const std::vector<GradientSpec>& gradients,
                                        std::uint32_t flags, const std::string& scheme,
                                        const Ranks& ranks, const std::string& agreement = {});

// The number of ranks in the list; an empty list stands for all ranks.
std::size_t size_of(const Ranks& ranks);

// Stores `action`, which shutdown() calls while the runtime is still open. A second call with an
// equal action does nothing. Exceptions of the action are dropped.
void before_shutdown(void (*action)());

}  // namespace penstock::torch

#endif  // PENSTOCK_LIBTORCH_WORLD_HPP
