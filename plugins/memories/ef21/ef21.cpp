// EF21 and EF21-SGDM: every rank keeps an estimate of its gradient, all ranks keep the mean of the
// estimates, and only the difference from the rank's estimate is compressed and sent.
// Source: Richtarik, Sokolov, Fatkhullin, "EF21: A New, Simpler, Theoretically Better, and
// Practically Faster Error Feedback", NeurIPS 2021; Fatkhullin, Tyurin, Richtarik, "Momentum
// Provably Improves Error Feedback!", NeurIPS 2023.
#include <methods/payload.hpp>
#include <penstock/memory.hpp>

namespace sdk = penstock::sdk;

namespace {

class Ef21 {
 public:
  static inline const sdk::OptionList options{
      sdk::real_option("zeta", 1).above(0).at_most(1).summary(
          "weight of the gradient in the average that is tracked, the average so far has the rest "
          "of 1; 1: the gradient itself (EF21), below 1 EF21-SGDM")};

  explicit Ef21(const sdk::Options& values) : zeta_(static_cast<float>(values.real("zeta"))) {}

  // Numbers of the states; the last state exists with SGDM only.
  enum : uint64_t { kShift, kEstimate, kAverage };

  // The estimate is the mean of the ranks' shifts, so neither may be lost without the other.
  void plan(const sdk::Item& item, const penstock_compressor_need&, sdk::MemoryNeed& need) {
    const auto add = [&](const char* name, uint32_t state_class) {
      need.states.add(name, item.rows(), item.cols(), state_class, PENSTOCK_FLOAT32,
                      PENSTOCK_RESIZE_REFUSE);
    };
    add("shift", PENSTOCK_STATE_LOCAL);
    add("estimate", PENSTOCK_STATE_REPLICATED);
    if (averages()) add("average", PENSTOCK_STATE_LOCAL);
    need.work_is = PENSTOCK_WORK_IS_SCRATCH;
    need.flags = PENSTOCK_MEMORY_SHIFTS | PENSTOCK_MEMORY_ADDS_REST |
                 PENSTOCK_MEMORY_DECODED_RECORD |
                 (averages() ? uint32_t{PENSTOCK_MEMORY_OWNS_MOMENTUM} : 0u);
  }

  // v = (1 - zeta) v + zeta g; work = v - t, in true units
  void compensate(const sdk::Call& call, const sdk::Item& item, std::span<const float>) {
    const std::span<const float> grad = item.grad(), shift = item.state(kShift);
    const std::span<float> work = item.work();
    const std::span<float> average = averages() ? item.state(kAverage) : std::span<float>();
    const auto unscale = static_cast<float>(1 / call.step->grad_scale);
    for (uint64_t i = 0; i < work.size(); ++i) {
      float wanted = grad[i] * unscale;
      if (averages()) wanted = average[i] = (1 - zeta_) * average[i] + zeta_ * wanted;
      work[i] = wanted - shift[i];
    }
  }

  // t += c
  void record(const sdk::Call&, const sdk::Item& item, const sdk::PayloadReader& taken) {
    sdk::add_payload(taken, item.state(kShift));
  }

  // G += mean of c; the optimizer gets G
  void finish(const sdk::Call&, const sdk::Item& item) {
    const std::span<float> out = item.out(), estimate = item.state(kEstimate);
    for (uint64_t i = 0; i < out.size(); ++i) out[i] = estimate[i] += out[i];
  }

 private:
  bool averages() const { return zeta_ < 1; }
  float zeta_;
};

}  // namespace

PENSTOCK_MEMORY(Ef21, "memory/ef21", "0.1.0",
                "compresses the difference from the sum of the values sent so far: EF21, with zeta "
                "EF21-SGDM",
                "Richtarik, Sokolov, Fatkhullin, EF21, NeurIPS 2021");
