// DIANA: every rank learns a shift, and compresses and sends the difference between its gradient
// and the shift. The noise of an unbiased compressor then shrinks with the difference.
// Source: Mishchenko, Gorbunov, Takac, Richtarik, "Distributed Learning with Compressed Gradient
// Differences", 2019.
#include <methods/payload.hpp>
#include <penstock/memory.hpp>

namespace sdk = penstock::sdk;

namespace {

class Diana {
 public:
  static inline const sdk::OptionList options{
      sdk::real_option("alpha", 0.1)
          .above(0)
          .at_most(1)
          .summary(
              "the shift moves by this share of the sent values; at most 1 / (1 + omega), where "
              "omega is the compressor's variance (n / k - 1 for random-k)")};

  explicit Diana(const sdk::Options& values) : alpha_(static_cast<float>(values.real("alpha"))) {}

  enum : uint64_t { kShift, kMean };  // numbers of the states

  // The second state is the mean of the ranks' shifts, so neither state may be lost without the
  // other.
  void plan(const sdk::Item& item, const penstock_compressor_need&, sdk::MemoryNeed& need) {
    const auto add = [&](const char* name, uint32_t state_class) {
      need.states.add(name, item.rows(), item.cols(), state_class, PENSTOCK_FLOAT32,
                      PENSTOCK_RESIZE_REFUSE);
    };
    add("shift", PENSTOCK_STATE_LOCAL);
    add("mean", PENSTOCK_STATE_REPLICATED);
    need.work_is = PENSTOCK_WORK_IS_SCRATCH;
    need.flags = PENSTOCK_MEMORY_SHIFTS | PENSTOCK_MEMORY_DECODED_RECORD;
  }

  // work = g - h, in true units
  void compensate(const sdk::Call& call, const sdk::Item& item, std::span<const float>) {
    const std::span<const float> grad = item.grad(), shift = item.state(kShift);
    const std::span<float> work = item.work();
    const auto unscale = static_cast<float>(1 / call.step->grad_scale);
    for (uint64_t i = 0; i < work.size(); ++i) work[i] = grad[i] * unscale - shift[i];
  }

  // h += alpha m
  void record(const sdk::Call&, const sdk::Item& item, const sdk::PayloadReader& taken) {
    sdk::add_payload(taken, item.state(kShift), alpha_);
  }

  // out = H + mean of m; H += alpha mean of m
  void finish(const sdk::Call&, const sdk::Item& item) {
    const std::span<float> out = item.out(), mean = item.state(kMean);
    for (uint64_t i = 0; i < out.size(); ++i) {
      const float arrived = out[i];
      out[i] += mean[i];
      mean[i] += alpha_ * arrived;
    }
  }

 private:
  float alpha_;
};

}  // namespace

PENSTOCK_MEMORY(Diana, "memory/diana", "0.1.0",
                "compresses the difference from a learnt shift, for unbiased compressors: DIANA",
                "Mishchenko, Gorbunov, Takac, Richtarik, Distributed Learning with Compressed "
                "Gradient Differences, 2019");
