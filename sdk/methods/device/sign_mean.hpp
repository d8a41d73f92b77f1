// Sends entries of one sign as positions and one mean, on a device: ../sign_mean.hpp with a
// threshold that learns (steered.hpp).
#pragma once

#include <kernels/cuda/dense.hpp>
#include <kernels/cuda/one_sign.hpp>
#include <kernels/cuda/steering.hpp>
#include <methods/agreed.hpp>
#include <methods/device/sparse.hpp>

#include <algorithm>

namespace penstock::sdk::device {

// The layout of a call's scratch: numbers, magnitudes of the sign, magnitudes of the chosen
// entries, a kernel's workspace. At most `most` of n entries are sent.
class OneSignScratch {
 public:
  OneSignScratch(uint64_t n, uint64_t most)
      : chosen_(kNumbers + whole_lines(n * sizeof(float))),
        workspace_(chosen_ + whole_lines(most * sizeof(float))),
        bytes_(workspace_ + std::max(kernels::cuda::select_workspace_bytes(n, most),
                                     kernels::cuda::reduce_workspace_bytes(n))) {}
  uint64_t bytes() const { return bytes_; }

  kernels::cuda::Steering* steering(const Call& call) const {
    return call.scratch<kernels::cuda::Steering>(1).data();
  }
  double* sum(const Call& call) const { return call.scratch<double>(1, kNumbers - 64).data(); }
  float* magnitudes(const Call& call, uint64_t n) const {
    return call.scratch<float>(n, kNumbers).data();
  }
  float* chosen(const Call& call, uint64_t most) const {
    return call.scratch<float>(most, chosen_).data();
  }
  kernels::cuda::Workspace workspace(const Call& call) const {
    return workspace_of(call, workspace_);
  }

 private:
  static constexpr uint64_t kNumbers = 512;
  static_assert(sizeof(kernels::cuda::Steering) <= kNumbers - 64);
  uint64_t chosen_, workspace_, bytes_;
};

// Writes the positions and the mean of about rules.band.target entries with this sign to sections 0
// and 1, and updates `state`. The numbers equal the CPU's up to the order of sums.
inline void send_one_sign(const Call& call, const Item& item, PayloadWriter& payload, bool negative,
                          const kernels::cuda::SteeringLaw& law,
                          const kernels::cuda::SteeringRules& rules, std::span<float> state) {
  namespace cuda = kernels::cuda;
  const uint64_t n = item.numel(), most = rules.band.most;
  const auto queue = [&](auto&& launch) { queue_on_device(call, item, "select from", launch); };
  const OneSignScratch scratch(n, most);
  cuda::Steering* const steering = scratch.steering(call);
  float* const mean = payload.room<float>(1).data();
  payload.kind(PENSTOCK_PAYLOAD_CODED);
  payload.count(1, 1);
  if (n == 0) {
    payload.count(0, 0);
    queue([&](void* s) { return cuda::dense::clear(mean, sizeof(float), s); });
    return queue(
        [&](void* s) { return cuda::learn(law, rules, nullptr, steering, n, state.data(), s); });
  }
  float* const magnitudes = scratch.magnitudes(call, n);
  float* const chosen = scratch.chosen(call, most);
  const cuda::Workspace workspace = scratch.workspace(call);
  cuda::SelectRequest request{magnitudes, n, most, payload.room<uint32_t>(0).data(), chosen};
  request.count = payload.count_on_device(0);
  request.threshold = &steering->threshold;
  request.least = rules.band.least;
  request.instead = rules.band.target;
  request.reached = &steering->reached;
  queue([&](void* s) {
    return cuda::magnitudes_of_sign(item.work().data(), n, negative, magnitudes, s);
  });
  queue([&](void* s) {
    return cuda::estimate(law, rules, magnitudes, n, state.data(), steering, workspace, s);
  });
  queue([&](void* s) { return cuda::dense::clear(chosen, most * sizeof(float), s); });
  queue([&](void* s) { return cuda::select({&request, 1}, workspace, s); });
  queue([&](void* s) {
    return cuda::learn(law, rules, request.count, steering, n, state.data(), s);
  });
  double* const sum = scratch.sum(call);
  queue([&](void* s) { return cuda::sum_of_magnitudes(chosen, most, sum, workspace, s); });
  queue([&](void* s) {
    return cuda::take_mean({item.work().data(), request.indices, request.count, most}, sum,
                           negative, item.keeps(), mean, s);
  });
}

}  // namespace penstock::sdk::device
