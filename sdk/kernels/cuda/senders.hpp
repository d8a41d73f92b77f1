// The payloads of several ranks as an argument of one kernel: by value, so that it travels with the
// launch and needs no copy first.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

namespace penstock::kernels::cuda {

inline constexpr uint64_t kMostSenders = 32;  // in one call; further senders go into the next call

template <typename Sender>
struct Senders {
  Sender all[kMostSenders];
  uint32_t n;
};

// `senders` must have at most kMostSenders elements.
template <typename Sender>
Senders<Sender> by_value(std::span<const Sender> senders) {
  Senders<Sender> values{};
  std::copy(senders.begin(), senders.end(), values.all);
  values.n = static_cast<uint32_t>(senders.size());
  return values;
}

}  // namespace penstock::kernels::cuda
