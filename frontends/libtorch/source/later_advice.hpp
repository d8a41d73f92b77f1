// The remedy where parameters or anchors that were equal differ later.
#ifndef PENSTOCK_LIBTORCH_LATER_ADVICE_HPP
#define PENSTOCK_LIBTORCH_LATER_ADVICE_HPP

#include <string_view>

namespace penstock::torch {

inline constexpr std::string_view kLaterAdvice =
    "Equal ranks stay equal in training, so the program has changed parameters on some ranks only, "
    "or bits have changed in a message or in memory: start again from a checkpoint.";

}  // namespace penstock::torch

#endif
