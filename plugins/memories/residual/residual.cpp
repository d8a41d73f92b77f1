// Error feedback: values that were not sent are added to the next gradient.
// Source: Seide et al., "1-Bit Stochastic Gradient Descent", Interspeech 2014; Karimireddy et al.,
// "Error Feedback Fixes SignSGD", ICML 2019.
#include <kernels/fold.hpp>
#include <methods/agreed.hpp>
#include <methods/device/sparse.hpp>
#include <methods/payload.hpp>
#include <penstock/memory.hpp>

#include <algorithm>
#include <limits>

namespace sdk = penstock::sdk;
namespace kernels = penstock::kernels;

namespace {

class Residual {
 public:
  static inline const sdk::OptionList options{
      sdk::real_option("beta", 1).at_least(0).at_most(1).summary(
          "factor of the values that were not sent, when they are kept"),
      sdk::real_option("gamma", 1)
          .at_least(std::numeric_limits<float>::min())
          .at_most(1e30)
          .summary("factor of the gradient when it is added")};

  explicit Residual(const sdk::Options& values)
      : beta_(values.real("beta")),
        gamma_(values.real("gamma")),
        path_(sdk::agreed_code_path("")) {}

  void describe(penstock_memory_traits& traits) const {
    traits.device_types = sdk::device::kWhereKernelsAre;
  }

  // The compressor works on the residual: encode subtracts the values that it sends, and the rest
  // stays.
  void plan(const sdk::Item& item, const penstock_compressor_need& compressor,
            sdk::MemoryNeed& need) {
    if ((compressor.flags & PENSTOCK_NEED_LOSSLESS) != 0) return;  // nothing is ever left over
    need.work_state = need.states.add("residual", item.rows(), item.cols(), PENSTOCK_STATE_MASS);
    need.work_is = PENSTOCK_WORK_IS_STATE;
    need.form = PENSTOCK_FORM_AFFINE;
    need.beta = beta_;
    need.gamma = gamma_;
  }

  // work = beta * work + gamma * grad, in true units
  void compensate(const sdk::Call& call, const sdk::Item& item, std::span<const float>) {
    if (item.lossless()) return;
    const kernels::Fold fold{PENSTOCK_FORM_AFFINE,
                             static_cast<float>(beta_),
                             static_cast<float>(gamma_),
                             static_cast<float>(1 / call.step->grad_scale),
                             item.grad().data(),
                             item.work().data(),
                             nullptr};
    if constexpr (sdk::device::kHasKernels)
      if (call.on_device()) return sdk::device::compensate(call, item, fold);
    kernels::compensate(fold, item.numel(), path_);
  }

  void give_back(const sdk::Call& call, const sdk::Item& item, const sdk::PayloadReader& payload) {
    if (item.lossless()) return;
    if constexpr (sdk::device::kHasKernels)
      if (call.on_device()) return sdk::device::add_payload(call, item, payload, item.work());
    sdk::add_payload(payload, item.work());
  }

  void drain(const sdk::Call& call, const sdk::Item& item) {
    if (item.lossless()) return;
    const std::span<float> residual = item.state(0);
    const std::span<float> out = item.out();
    if constexpr (sdk::device::kHasKernels)
      if (call.on_device()) {
        sdk::device::add(call, item, residual.data(), out);
        return sdk::device::clear(call, item, residual);
      }
    for (uint64_t i = 0; i < residual.size(); ++i) out[i] += residual[i];
    std::fill(residual.begin(), residual.end(), 0.0f);
  }

 private:
  double beta_;
  double gamma_;
  kernels::CodePath path_;
};

}  // namespace

PENSTOCK_MEMORY(Residual, "memory/residual", "0.1.0",
                "adds the values that were not sent to the "
                "next gradient",
                "Karimireddy et al., Error Feedback Fixes SignSGD, ICML 2019");
