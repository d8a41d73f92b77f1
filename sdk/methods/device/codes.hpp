// Codes on a device: the data and functions with which quantising methods make their codes and add
// the codes of all ranks.
#pragma once

#include <kernels/cuda/coded_sum.hpp>
#include <kernels/cuda/codes.hpp>
#include <kernels/cuda/reduce.hpp>
#include <kernels/cuda/stochastic.hpp>
#include <kernels/cuda/values.hpp>
#include <methods/agreed.hpp>
#include <methods/device/batches.hpp>
#include <methods/device/call.hpp>
#include <penstock/compressor.hpp>

namespace penstock::sdk::device {

namespace cuda = kernels::cuda;

// One item whose numbers and codes a method computes from work on a device.
template <typename Scale>
struct Quantising {
  std::span<float> work;
  uint64_t block;  // elements that share numbers; 0: all
  double unit;     // of work; see work_unit()
  bool take_out;   // subtract the values of the codes from work
  kernels::RandomKey key;
  uint64_t first;             // index in the gradient of work's first element
  Scale* scales;              // the numbers of each block
  uint8_t* codes;             // one byte each
  void* of_blocks;            // room for kBytesOfBlock bytes per block, between two kernels
  cuda::Workspace workspace;  // for reductions

  uint64_t n_blocks() const { return block == 0 ? 1 : (work.size() + block - 1) / block; }
  template <typename Found>
  Found* found() const {
    return static_cast<Found*>(of_blocks);
  }
};

// The offsets of the parts of a call's scratch: codes, data of blocks, workspace of reductions.
inline constexpr uint64_t kBytesOfBlock = sizeof(kernels::Moments);
struct QuantisingScratch {
  uint64_t of_blocks;
  uint64_t workspace;
  uint64_t bytes;
};
inline QuantisingScratch quantising_scratch(uint64_t numel, uint64_t block, bool has_codes) {
  const uint64_t n_blocks = block == 0 ? 1 : (numel + block - 1) / block;
  const uint64_t of_blocks = has_codes ? whole_lines(numel) : 0;
  const uint64_t workspace = of_blocks + whole_lines(n_blocks * kBytesOfBlock);
  return {of_blocks, workspace, workspace + cuda::reduce_workspace_bytes(numel, block)};
}

// out (+)= the values of all ranks for an item. Queues sum(senders, how, stream) for batches of as
// many senders as a kernel takes, in ascending order of ranks. `sender_of` returns the sender of a
// payload that has been checked. The first decode call of an item begins with zeros, and the last
// batch applies call.result_scale().
template <typename Sender, typename SenderOf, typename Sum>
void sum_payloads(const Call& call, const Item& item, const PayloadReaders& payloads,
                  uint64_t which, uint64_t block, const SenderOf& sender_of, const Sum& sum) {
  const std::span<float> out = item.out();
  cuda::CodedSum how{(call.flags & PENSTOCK_DECODE_FIRST) != 0 ? cuda::SumOver::kZeros
                                                               : cuda::SumOver::kWhatIsThere,
                     1, out.data(), out.size(), block};
  const auto add = [&](std::span<const Sender> senders, bool, bool is_last) {
    how.scale = is_last ? call.result_scale() : 1;
    queue_on_device(call, item, "add the payloads of",
                    [&](void* stream) { return sum(senders, how, stream); });
    how.over = cuda::SumOver::kWhatIsThere;
  };
  each_batch<Sender>(payloads, which, sender_of, add);
}

}  // namespace penstock::sdk::device
