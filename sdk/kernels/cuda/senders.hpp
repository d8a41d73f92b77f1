// What several ranks sent, as one kernel takes it: by value, so that it travels with the launch and
// no copy has to come before it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

namespace penstock::kernels::cuda {

inline constexpr uint64_t kMostSenders = 32;  // of one call; what more are, go in the next

template <typename Sender>
struct Senders {
  Sender all[kMostSenders];
  uint32_t n;
};

// At most kMostSenders of them.
template <typename Sender>
Senders<Sender> by_value(std::span<const Sender> senders) {
  Senders<Sender> values{};
  std::copy(senders.begin(), senders.end(), values.all);
  values.n = static_cast<uint32_t>(senders.size());
  return values;
}

}  // namespace penstock::kernels::cuda
