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

// Makes the set of the next optimizer, which ends with the runtime at the latest; collective.
std::shared_ptr<GradientSet> create_set(const std::vector<GradientSpec>& gradients,
                                        std::uint32_t flags, const std::string& scheme,
                                        const Ranks& ranks);

// How many ranks these are; none stands for all.
std::size_t size_of(const Ranks& ranks);

// `action` is carried out by shutdown() while the runtime is still open; what it throws is dropped.
void before_shutdown(void (*action)());

}  // namespace penstock::torch

#endif  // PENSTOCK_LIBTORCH_WORLD_HPP
