// Plugins that work on a device, against themselves on the CPU: one file, one instance, the same
// calls in both places, and the same bits.
#include <penstock/fold.h>

#include <testing/gtest.hpp>

#include <cmath>

#include "place.hpp"

namespace penstock::simulated::plugins_test {

using test::LoadedPlugin;
using test::take;

class PluginsOnADevice : public SimulatedDevice {};

// A gradient on one rank, its residual, and what it sends.
struct Sender {
  Sender(Place& place, uint64_t n, uint64_t k, uint64_t seed)
      : grad(place.put(drawn(n, seed))),
        work(place.put(drawn(n, 100 + seed))),
        indices(place.put(std::vector<uint32_t>(k, 7))),
        values(place.put(std::vector<float>(k, 7))) {
    item.struct_size = sizeof item;
    item.name = sdk::str("gradient");
    item.numel = item.rows = n;
    item.cols = 1;
    item.grad = item.out = tensor_of(grad, n, place.exec());
    item.work = residual = tensor_of(work, n, place.exec());
    item.flags = PENSTOCK_ITEM_KEEP;
    item.states = &states;
    item.n_states = 1;
    for (penstock_section* section : sections) {
      section->struct_size = sizeof *section;
      section->capacity = k;
    }
    pair[0].data = indices;
    pair[0].dtype = PENSTOCK_UINT32;
    pair[0].role = PENSTOCK_ROLE_INDICES;
    pair[1].data = values;
    pair[1].dtype = PENSTOCK_FLOAT32;
    pair[1].role = PENSTOCK_ROLE_VALUES;
    payload.struct_size = sizeof payload;
    payload.sections = sections;
    payload.n_sections = 2;
  }
  Sender(const Sender&) = delete;
  Sender& operator=(const Sender&) = delete;

  float* grad;
  float* work;
  uint32_t* indices;
  float* values;
  penstock_tensor residual{};
  const penstock_tensor* states = &residual;
  penstock_item item{};
  penstock_section pair[2]{};
  penstock_section* sections[2] = {&pair[0], &pair[1]};
  penstock_payload payload{};
};

// All arrays of a few ranks after each call of a step, one after the other.
struct Seen {
  std::vector<std::vector<float>> floats;
  std::vector<std::vector<uint32_t>> indices;
  bool operator==(const Seen& other) const {
    const auto same = [](const std::vector<float>& a, const std::vector<float>& b) {
      return a.size() == b.size() &&
             (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
    };
    return indices == other.indices &&
           std::equal(floats.begin(), floats.end(), other.floats.begin(), other.floats.end(), same);
  }
};

struct Case {
  uint64_t n;
  uint64_t ranks;
  bool folds;
};

Seen step(bool on_device, const Case& of) {
  const LoadedPlugin topk = simulated_plugin("compressor-topk-simulated.so");
  const LoadedPlugin residual = simulated_plugin("memory-residual-simulated.so");
  const test::CompressorInstance compressor(topk, {{"density", 0.05}});
  const test::MemoryInstance memory(residual, {{"beta", 0.75}, {"gamma", 1.5}});
  const uint64_t k = std::min<uint64_t>(of.n, uint64_t(std::ceil(0.05 * double(of.n))));
  Place place(on_device);
  penstock_step step{};
  step.struct_size = sizeof step;
  step.grad_scale = 8;
  step.world = uint32_t(of.ranks);
  std::deque<Sender> senders;
  Seen seen;
  for (uint64_t r = 0; r < of.ranks; ++r) {
    Sender& sender = senders.emplace_back(place, of.n, k, r);
    penstock_item* item = &sender.item;
    penstock_payload* payload = &sender.payload;
    if (of.folds) {
      penstock_fold fold{};
      fold.struct_size = sizeof fold;
      fold.form = PENSTOCK_FORM_AFFINE;
      fold.beta = 0.75;
      fold.gamma = 1.5;
      const penstock_fold* folds = &fold;
      const auto* encoder = static_cast<const penstock_fold_encoder*>(
          compressor.table().extension(compressor.self(), sdk::str(PENSTOCK_FOLD_EXTENSION)));
      EXPECT_EQ(take(encoder->encode(compressor.self(), &place.exec(), &step, 0, &item, 1, &payload,
                                     &folds))
                    .message,
                "");
    } else {
      EXPECT_EQ(memory.compensate(place.exec(), step, {item}, nullptr).message, "");
      EXPECT_EQ(compressor.encode(place.exec(), step, 0, {item}, {payload}).message, "");
    }
    EXPECT_EQ(payload->kind, uint32_t{PENSTOCK_PAYLOAD_SPARSE});
    EXPECT_EQ(sender.pair[0].count, k);
    seen.floats.push_back(place.get(sender.work, of.n));
    seen.floats.push_back(place.get(sender.values, k));
    seen.indices.push_back(place.get(sender.indices, k));
  }
  std::vector<const penstock_payload*> payloads;
  for (Sender& sender : senders) payloads.push_back(&sender.payload);
  Sender& first = senders.front();
  step.result_scale = 1.0 / double(of.ranks);
  EXPECT_EQ(compressor
                .decode(place.exec(), step, 0, {&first.item}, payloads, of.ranks,
                        PENSTOCK_DECODE_FIRST | PENSTOCK_DECODE_LAST)
                .message,
            "");
  seen.floats.push_back(place.get(first.grad, of.n));
  EXPECT_EQ(memory.give_back(place.exec(), step, {&first.item}, {&first.payload}).message, "");
  seen.floats.push_back(place.get(first.work, of.n));
  EXPECT_EQ(memory.drain(place.exec(), {&first.item}).message, "");
  seen.floats.push_back(place.get(first.grad, of.n));
  seen.floats.push_back(place.get(first.work, of.n));
  return seen;
}

TEST_F(PluginsOnADevice, HaveTheBitsOfTheCpu) {
  for (const Case& of :
       {Case{0, 2, true}, Case{1, 1, true}, Case{31, 3, true}, Case{5000, 2, false},
        Case{5000, 4, true}, Case{70000, 2, true}, Case{90, 40, true}}) {
    EXPECT_TRUE(step(true, of) == step(false, of)) << of.n << " entries on " << of.ranks;
    for (const Report& report : reports()) ADD_FAILURE() << report.sentence;
  }
}

TEST_F(PluginsOnADevice, LaunchNineKernelsForAStepAndThreeToGiveBackAndDrain) {
  const uint64_t before = calls(Call::kLaunch);
  (void)step(true, {5000, 1, true});
  // Eight of the selection, one sum, and give_back and drain: three.
  EXPECT_EQ(calls(Call::kLaunch) - before, 12u);
}

TEST_F(PluginsOnADevice, SayWhereTheyWork) {
  const uint64_t both = uint64_t{1} << PENSTOCK_DEVICE_CPU | uint64_t{1} << PENSTOCK_DEVICE_CUDA;
  const LoadedPlugin topk = simulated_plugin("compressor-topk-simulated.so");
  const auto devices = [&](const test::OptionSettings& settings) {
    return test::CompressorInstance(topk, settings).describe().device_types;
  };
  EXPECT_EQ(devices({}), both);
  EXPECT_EQ(devices({{"scope", "bucket"}}), uint64_t{1} << PENSTOCK_DEVICE_CPU);
  EXPECT_EQ(devices({{"value_type", "fp16"}}), both);
  EXPECT_EQ(test::MemoryInstance(simulated_plugin("memory-residual-simulated.so"))
                .describe()
                .device_types,
            both);
}

TEST_F(PluginsOnADevice, TellTheGradientThatTheDeviceRefuses) {
  const test::CompressorInstance compressor(simulated_plugin("compressor-topk-simulated.so"));
  Place place(true);
  Sender sender(place, 100, 1, 1);
  penstock_step step{};
  step.struct_size = sizeof step;
  step.grad_scale = 1;
  fail_call(Call::kLaunch, 2, 719);
  const test::Outcome outcome =
      compressor.encode(place.exec(), step, 0, {&sender.item}, {&sender.payload});
  EXPECT_EQ(outcome.code, uint32_t{PENSTOCK_DEVICE_ERROR});
  EXPECT_TRUE(contains(outcome.message, "cuda:1 cannot select from gradient 'gradient'"))
      << outcome.message;
}

}  // namespace penstock::simulated::plugins_test
