// Signs on a device: packed into payloads with the numbers that they stand for, added, voted on.
// The numbers leave the device only in payloads, and the values to take out of work are read from
// the payload: so the sent and the kept values agree to the bit.
#pragma once

#include <kernels/cuda/reduce.hpp>
#include <kernels/cuda/sign.hpp>
#include <methods/agreed.hpp>
#include <methods/device/batches.hpp>
#include <methods/device/call.hpp>
#include <methods/sign_payload.hpp>

#include <algorithm>

namespace penstock::sdk::device {

using kernels::cuda::SignRuns;
using kernels::cuda::VotePart;

// ---- Pack ----

inline uint64_t sign_scratch_bytes(uint64_t numel) {
  return kernels::cuda::pack_signs_workspace_bytes(numel);
}

// The device version of write_signs of sign_payload.hpp. The device chooses the section that names
// the zeros, so the counts of these sections are known only on the device.
inline void write_signs(const Call& call, const Item& item, PayloadWriter& payload,
                        const kernels::Fold* fold = nullptr) {
  payload.kind(PENSTOCK_PAYLOAD_CODED);
  payload.count(kNegative, kernels::sign_words(item.numel()));
  payload.count(kZeros, 0);
  payload.count(kNonzero, 0);
  if (item.numel() == 0) return;
  const std::span<uint32_t> zeros = payload.room<uint32_t>(kZeros);
  const kernels::cuda::SignRoom room{payload.room<uint64_t>(kNegative).data(),
                                     zeros.data(),
                                     zeros.size(),
                                     payload.room<uint64_t>(kNonzero).data(),
                                     payload.count_on_device(kZeros),
                                     payload.count_on_device(kNonzero)};
  queue_on_device(call, item, "pack the signs of", [&](void* stream) {
    return kernels::cuda::pack_signs(item.work().data(), item.numel(), room, workspace_of(call),
                                     stream, fold);
  });
}

// ---- Numbers that signs stand for ----

// The scratch of a call begins with the sums of its runs; the workspace of their reduction follows.
inline uint64_t sums_of_signs_bytes(uint64_t numel, uint64_t run) {
  const uint64_t n_runs = std::max<uint64_t>(1, (numel + run - 1) / run);
  return whole_lines(n_runs * sizeof(kernels::SumsBySign));
}
inline uint64_t sign_numbers_scratch_bytes(uint64_t numel, uint64_t run) {
  return sums_of_signs_bytes(numel, run) + kernels::cuda::reduce_workspace_bytes(numel, run);
}

// *number = the mean magnitude of work, 0 without elements.
inline void write_mean_magnitude(const Call& call, const Item& item, float* number) {
  const std::span<const float> work = item.work();
  double* const sum = call.scratch<double>(1).data();
  const kernels::cuda::Workspace workspace =
      workspace_of(call, sums_of_signs_bytes(work.size(), std::max<uint64_t>(1, work.size())));
  queue_on_device(call, item, "find the mean magnitude of", [&](void* stream) {
    const int32_t error =
        kernels::cuda::sum_of_magnitudes(work.data(), work.size(), sum, workspace, stream);
    return error != 0 ? error : kernels::cuda::mean_magnitude(sum, work.size(), number, stream);
  });
}

// Writes two numbers for each run of work: the mean of its positive elements and the mean of its
// negative elements, each 0 if there are no such elements.
inline void write_means_by_sign(const Call& call, const Item& item, uint64_t run, float* numbers) {
  const std::span<const float> work = item.work();
  if (work.empty()) return;
  const uint64_t n_runs = (work.size() + run - 1) / run;
  auto* const sums = call.scratch<kernels::SumsBySign>(n_runs).data();
  const kernels::cuda::Workspace workspace =
      workspace_of(call, sums_of_signs_bytes(work.size(), run));
  queue_on_device(call, item, "find the means of", [&](void* stream) {
    const int32_t error =
        kernels::cuda::sums_by_sign(work.data(), work.size(), run, sums, workspace, stream);
    return error != 0 ? error : kernels::cuda::means_by_sign(sums, n_runs, numbers, stream);
  });
}

// Takes these numbers of the payload out of work.
inline void take_out_by_sign(const Call& call, const Item& item, SignRuns runs,
                             const float* numbers) {
  queue_on_device(call, item, "subtract the sent values from", [&](void* stream) {
    return kernels::cuda::take_out_by_sign(item.work().data(), item.numel(), runs, numbers, stream);
  });
}

// Takes the sent values out of work if signs stand for `one` and -`one`.
inline void take_out_signs(const Call& call, const Item& item, float one) {
  queue_on_device(call, item, "subtract the sent values from", [&](void* stream) {
    return kernels::cuda::take_out_signs(item.work().data(), item.numel(), one, stream);
  });
}

// ---- Unpack ----

// out (+)= the numbers of each rank. `runs(item)` maps the item's elements to their numbers;
// `read(payload, item)` checks a payload and returns its ValuedSigns, in device memory.
template <typename Runs, typename Read>
void decode_valued_signs(const Call& call, const Items& items, const PayloadReaders& payloads,
                         Runs&& runs, Read&& read) {
  const bool over_zeros = (call.flags & PENSTOCK_DECODE_FIRST) != 0;
  for (uint64_t i = 0; i < items.size(); ++i) {
    const Item item = items[i];
    const auto add = [&](std::span<const kernels::ValuedSigns> senders, bool first, bool last) {
      queue_on_device(call, item, "add up the signs of", [&](void* stream) {
        return kernels::cuda::sum_valued_signs(senders, item.numel(), runs(item),
                                               first && over_zeros, last ? call.result_scale() : 1,
                                               item.out().data(), stream);
      });
    };
    each_batch<kernels::ValuedSigns>(
        payloads, i, [&](const PayloadReader& payload) { return read(payload, item); }, add);
  }
}

// out = `one` with the sign on which most of these ranks agree; `read(payload)` checks a payload
// and returns its signs, in device memory.
template <typename Read>
void decode_votes(const Call& call, const Item& item, const PayloadReaders& payloads,
                  uint64_t index, float one, Read&& read) {
  const auto vote = [&](std::span<const kernels::Signs> voters, bool first, bool last) {
    queue_on_device(call, item, "count the votes on", [&](void* stream) {
      return kernels::cuda::majority_vote(voters, {first, last}, item.numel(), one,
                                          item.out().data(), stream);
    });
  };
  each_batch<kernels::Signs>(payloads, index, read, vote);
}

}  // namespace penstock::sdk::device
