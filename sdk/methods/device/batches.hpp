// Passes the payloads of all ranks to kernels, in batches of as many payloads as a kernel takes.
#pragma once

#include <kernels/cuda/senders.hpp>
#include <penstock/compressor.hpp>

#include <array>

namespace penstock::sdk::device {

// Reads the payloads of an item that are not absent, in order of ranks, with read(payload). Calls
// queue(span of the results, is first batch, is last batch) at least once.
template <typename Sender, typename Read, typename Queue>
void each_batch(const PayloadReaders& payloads, uint64_t item, Read&& read, Queue&& queue) {
  std::array<Sender, kernels::cuda::kMostSenders> batch;
  uint64_t n = 0;
  bool first = true;
  for (uint64_t r = 0; r < payloads.n_ranks(); ++r) {
    const PayloadReader payload = payloads.at(item, r);
    if (payload.absent()) continue;
    if (n == batch.size()) {
      queue(std::span<const Sender>(batch), first, false);
      first = false;
      n = 0;
    }
    batch[n++] = read(payload);
  }
  queue(std::span<const Sender>(batch.data(), n), first, true);
}

}  // namespace penstock::sdk::device
