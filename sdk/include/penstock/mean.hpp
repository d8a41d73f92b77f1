// The extension PENSTOCK_MEAN_EXTENSION of a class that declares kMeanDtypes.
#pragma once

#include <penstock/mean.h>

namespace penstock::sdk {

template <uint64_t kDtypes>
inline constexpr penstock_mean mean_of_dtypes{sizeof(penstock_mean), kDtypes};

}  // namespace penstock::sdk
