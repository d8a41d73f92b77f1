// The memory of DGC with clipping, on a device, compared with the CPU. The measured norm is near
// the CPU's sum. Values that depend on no sum have the CPU's bits.
#include "gradient.hpp"

namespace penstock::simulated::clipping_test {

class ClippingOnADevice : public WellUsedDevice {};

constexpr uint32_t kRanks = 3;

// A gradient with this memory in a place, with a loss scale and after two steps.
class PlacedMemory {
 public:
  PlacedMemory(Place& place, const test::OptionSettings& options, int64_t n)
      : place_(place),
        plugin_(simulated_plugin("memory", "dgc")),
        memory_(plugin_, options),
        shape_{n},
        item_(test::describe_item(shape_, kName, 0)) {
    step_.struct_size = sizeof step_;
    step_.grad_scale = 8;
    step_.world = kRanks;
    item_.grad = tensor_of(place.put(drawn(item_.numel, 7)), item_.numel, place.exec());
    const Compressor topk({"topk", {{"density", 0.05}}});
    const auto compressed = test::ask_needs(topk.instance, topk.plugin, 0, kRanks, {&item_});
    planned_ = std::move(test::ask_needs(memory_, plugin_, {&item_}, compressed).front());
    for (const penstock_state_declaration& declared : planned_.states) {
      const uint64_t numel = declared.rows * declared.cols;
      const Bytes zeros(numel * sdk::dtype_bytes(declared.dtype));
      states_.push_back(tensor_of(place.put(zeros), numel, place.exec(), declared.dtype));
    }
    for (const penstock_tensor& state : states_) pointers_.push_back(&state);
    item_.states = pointers_.data();
    item_.n_states = pointers_.size();
    item_.work = states_[planned_.c.work_state];
    for (const uint32_t state : {planned_.c.work_state, planned_.c.momentum_state})
      place.write(static_cast<float*>(states_[state].data), drawn(item_.numel, 20 + state));
  }
  PlacedMemory(const PlacedMemory&) = delete;
  PlacedMemory& operator=(const PlacedMemory&) = delete;

  uint64_t n_scalars() const { return planned_.c.n_scalars; }
  test::Outcome measure(float* scalars) {
    return memory_.measure(place_.exec(), step_, {&item_}, scalars);
  }
  float measured() {
    float* scalars = place_.put(std::vector<float>{-1});
    EXPECT_EQ(measure(scalars).message, "");
    return place_.get(scalars, 1)[0];
  }
  // `summed` lies in host memory.
  test::Outcome compensate(float summed) {
    return memory_.compensate(place_.exec(), step_, {&item_}, n_scalars() > 0 ? &summed : nullptr);
  }
  // Momentum and work after compensate.
  std::vector<float> compensated(float summed) {
    EXPECT_EQ(compensate(summed).message, "");
    std::vector<float> left = state(planned_.c.momentum_state);
    const std::vector<float> work = state(planned_.c.work_state);
    left.insert(left.end(), work.begin(), work.end());
    return left;
  }

 private:
  std::vector<float> state(uint32_t index) const {
    return place_.get(static_cast<const float*>(states_[index].data), item_.numel);
  }

  static inline const std::string kName = "gradient";
  Place& place_;
  test::LoadedPlugin plugin_;
  test::MemoryInstance memory_;
  test::Shape shape_;
  penstock_item item_;
  penstock_step step_{};
  test::PlannedMemory planned_;
  std::deque<penstock_tensor> states_;
  std::vector<const penstock_tensor*> pointers_;
};

test::OptionSettings clipping(const char* kind, double clip, bool nesterov = false) {
  return {{"clipping", kind}, {"clip", clip}, {"nesterov", nesterov}};
}

// The largest difference of two sums of n terms, rounded to float32 (kernels/cuda/reduce.hpp).
double most_apart(int64_t n, double sum) {
  return (0x1p-52 * (double(n) / 16 + double(n) / 4194304 + 80) + 0x1p-23) * sum;
}

TEST_F(ClippingOnADevice, MeasuresWhatTheCpuMeasures) {
  for (const int64_t n : kAwkwardSizes) {
    Place there(true), here(false);
    const float got = PlacedMemory(there, clipping("norm_global", 1), n).measured();
    const float expected = PlacedMemory(here, clipping("norm_global", 1), n).measured();
    EXPECT_NEAR(got, expected, most_apart(n, expected)) << n;
    EXPECT_EQ(got == 0, n == 0);
  }
}

TEST_F(ClippingOnADevice, LeavesTheBitsOfTheCpuUnderAKnownNorm) {
  for (const char* kind : {"none", "value", "norm_global", "value_global"})
    for (const bool nesterov : {false, true})
      for (const int64_t n : kAwkwardSizes) {
        Place there(true), here(false);
        const auto options = clipping(kind, 0.01, nesterov);
        EXPECT_EQ(PlacedMemory(there, options, n).compensated(5e3f),
                  PlacedMemory(here, options, n).compensated(5e3f))
            << kind << ", " << n;
      }
}

// The factor may be the next float, so every element may differ.
TEST_F(ClippingOnADevice, ToTheLocalNormIsNearTheCpu) {
  for (const double clip : {0.5, 1e6})
    for (const bool nesterov : {false, true})
      for (const int64_t n : kAwkwardSizes) {
        Place there(true), here(false);
        const auto options = clipping("norm", clip, nesterov);
        const std::vector<float> got = PlacedMemory(there, options, n).compensated(0),
                                 expected = PlacedMemory(here, options, n).compensated(0);
        ASSERT_EQ(got.size(), expected.size());
        for (uint64_t i = 0; i < got.size(); ++i)
          ASSERT_NEAR(got[i], expected[i], 4 * 0x1p-23 * (std::fabs(expected[i]) + clip))
              << n << ", element " << i;
      }
}

TEST_F(ClippingOnADevice, ChangesWhatIsKept) {
  Place place(true);
  const std::vector<float> plain = PlacedMemory(place, clipping("none", 1), 1000).compensated(0);
  for (const char* kind : {"norm", "norm_global", "value", "value_global"})
    EXPECT_NE(PlacedMemory(place, clipping(kind, 0.01), 1000).compensated(2), plain) << kind;
}

TEST_F(ClippingOnADevice, NobodyWaitsForANorm) {
  for (const char* kind : {"norm", "norm_global", "value", "value_global"}) {
    Place place(true);
    PlacedMemory memory(place, clipping(kind, 0.5), kLargeSize);
    float* scalars = place.put(std::vector<float>(1));
    const uint64_t before = waits().total();
    if (memory.n_scalars() > 0) {
      EXPECT_EQ(memory.measure(scalars).message, "");
    }
    EXPECT_EQ(memory.compensate(1).message, "");
    EXPECT_EQ(waits().total(), before) << kind;
  }
}

TEST_F(ClippingOnADevice, TellsTheGradientThatTheDeviceRefuses) {
  Place place(true);
  PlacedMemory memory(place, clipping("norm_global", 1), 100);
  float* scalars = place.put(std::vector<float>(1));
  fail_call(Call::kLaunch, 1, 719);
  const test::Outcome outcome = memory.measure(scalars);
  EXPECT_EQ(outcome.code, uint32_t{PENSTOCK_DEVICE_ERROR});
  EXPECT_TRUE(contains(outcome.message, "cuda:1 cannot measure the norm of gradient 'gradient'"))
      << outcome.message;
}

TEST_F(ClippingOnADevice, SaysThatItWorksThere) {
  for (const char* kind : {"none", "norm", "norm_global", "value", "value_global"})
    EXPECT_EQ(test::MemoryInstance(simulated_plugin("memory", "dgc"), clipping(kind, 1))
                  .describe()
                  .device_types,
              kOnBoth)
        << kind;
}

}  // namespace penstock::simulated::clipping_test
