// Momentum before compression: a running average of the local gradients is compressed and sent.
// With the compressor signsgd this is Signum.
// Source: Bernstein, Wang, Azizzadenesheli, Anandkumar, "signSGD: Compressed Optimisation for
// Non-Convex Problems", ICML 2018, algorithm 2.
#include <kernels/cuda/average.hpp>
#include <methods/device/sparse.hpp>
#include <penstock/memory.hpp>

#include <algorithm>

namespace sdk = penstock::sdk;
namespace kernels = penstock::kernels;

namespace {

class Momentum {
 public:
  static inline const sdk::OptionList options{
      sdk::real_option("momentum", 0.9)
          .at_least(0)
          .at_most(1)
          .summary("weight of the average so far; the gradient has the rest of 1. The optimizer "
                   "must have no momentum")};

  explicit Momentum(const sdk::Options& values) : momentum_(values.real("momentum")) {
    if (static_cast<float>(momentum_) == 1)
      throw sdk::invalid_argument("momentum: momentum is ", momentum_,
                                  ", expected less than 1, which would leave gradients no weight; "
                                  "try 0.9");
  }

  void describe(penstock_memory_traits& traits) const {
    traits.device_types = sdk::device::kWhereKernelsAre;
  }

  // Work is a copy of the average: sending does not use up the average, so encode must not subtract
  // anything from it. The average is no mass that must be delivered, so it is a soft state: saved,
  // never summed.
  void plan(const sdk::Item& item, const penstock_compressor_need&, sdk::MemoryNeed& need) {
    need.states.add("momentum", item.rows(), item.cols(), PENSTOCK_STATE_SOFT);
    need.work_is = PENSTOCK_WORK_IS_SCRATCH;
    if (momentum_ > 0) need.flags = PENSTOCK_MEMORY_OWNS_MOMENTUM;
  }

  // m = beta m + (1 - beta) g; work = m, in true units
  void compensate(const sdk::Call& call, const sdk::Item& item, std::span<const float>) {
    const std::span<const float> grad = item.grad();
    const std::span<float> average = item.state(0);
    const std::span<float> work = item.work();
    const auto unscale = static_cast<float>(1 / call.step->grad_scale);
    const auto old_share = static_cast<float>(momentum_);
    const auto new_share = static_cast<float>(1 - momentum_);
    if constexpr (sdk::device::kHasKernels)
      if (call.on_device())
        return sdk::device::queue_on_device(call, item, "average", [&](void* stream) {
          return kernels::cuda::advance_average(
              {average.data(), grad.data(), work.data(), old_share, new_share, unscale},
              work.size(), stream);
        });
    for (uint64_t i = 0; i < work.size(); ++i)
      work[i] = average[i] = old_share * average[i] + new_share * (grad[i] * unscale);
  }

  // Clears the average. It delivers nothing, because the model misses no part of an average.
  void drain(const sdk::Call& call, const sdk::Item& item) {
    const std::span<float> average = item.state(0);
    if constexpr (sdk::device::kHasKernels)
      if (call.on_device()) return sdk::device::clear(call, item, average);
    std::fill(average.begin(), average.end(), 0.0f);
  }

 private:
  double momentum_;
};

}  // namespace

PENSTOCK_MEMORY(Momentum, "memory/momentum", "0.1.0",
                "compresses a running average of the gradients: Signum, with signsgd",
                "Bernstein et al., signSGD: Compressed Optimisation for Non-Convex Problems, ICML "
                "2018");
