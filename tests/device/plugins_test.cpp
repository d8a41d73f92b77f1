// Top-k and its residual on a device, compared with the CPU. Both places use one file and equal
// calls and must give equal bits.
#include "ranks.hpp"

namespace penstock::simulated::plugins_test {

class PluginsOnADevice : public WellUsedDevice {};

// The item as its memory sees it. Its only state has the kept values.
struct MemoryItem {
  explicit MemoryItem(const penstock_item& of) : item(of) {
    item.states = &states;
    item.n_states = 1;
  }
  MemoryItem(const MemoryItem&) = delete;
  MemoryItem& operator=(const MemoryItem&) = delete;

  penstock_item item;
  const penstock_tensor* states = &item.work;
};

// Runs the calls of a step. Records all arrays after each call.
Seen step(bool on_device, const Case& of) {
  // A memory takes back float32 values; the core decodes narrow ones for it.
  const Compressor compressor({"topk", {{"density", 0.05}, {"value_type", "fp32"}}});
  const test::LoadedPlugin residual = simulated_plugin("memory", "residual");
  const test::MemoryInstance memory(residual, {{"beta", of.beta}, {"gamma", of.gamma}});
  Place place(on_device);
  std::deque<PlacedGradient> ranks;
  std::vector<Sent> sent;
  Seen seen;
  const auto see = [&](const std::string& when, uint32_t rank) {
    for (const auto& [name, bytes] : ranks[rank].all()) seen[sdk::text(when, name, rank)] = bytes;
  };
  for (uint32_t r = 0; r < of.ranks; ++r) {
    PlacedGradient& rank = ranks.emplace_back(place, compressor, of, r);
    rank.plan(memory, residual);
    MemoryItem kept(rank.item());
    if (of.form == PENSTOCK_FORM_NONE) {
      EXPECT_EQ(memory.compensate(place.exec(), rank.step(), {&kept.item}, nullptr).message, "");
    }
    sent.push_back(rank.send());
    EXPECT_EQ(sent[r].kind, uint32_t{PENSTOCK_PAYLOAD_SPARSE});
    EXPECT_EQ(sent[r].sections[0].count, uint64_t(std::ceil(0.05 * double(of.shape[0]))));
    seen[sdk::text("indices ", r)] = sent[r].sections[0].bytes;
    seen[sdk::text("values ", r)] = sent[r].sections[1].bytes;
    see("sent ", r);
  }
  PlacedGradient& first = ranks.front();
  std::deque<PlacedPayload> brought = first.bring(sent);
  EXPECT_EQ(first.decode(brought).message, "");
  see("decoded ", 0);
  MemoryItem kept(first.item());
  const penstock_payload* own = brought.front().c();
  EXPECT_EQ(memory.give_back(place.exec(), first.step(), {&kept.item}, {own}).message, "");
  see("given back ", 0);
  EXPECT_EQ(memory.drain(place.exec(), {&kept.item}).message, "");
  see("drained ", 0);
  return seen;
}

Case of_size(int64_t n, uint32_t ranks, uint32_t form = PENSTOCK_FORM_AFFINE) {
  return {.shape = {n}, .ranks = ranks, .form = form};
}

TEST_F(PluginsOnADevice, HaveTheBitsOfTheCpu) {
  for (const Case& of :
       {of_size(0, 2), of_size(1, 1), of_size(31, 3), of_size(5000, 2, PENSTOCK_FORM_NONE),
        of_size(5000, 4), of_size(kLargeSize, 2), of_size(90, 40)})
    EXPECT_EQ(difference(step(true, of), step(false, of)), "") << text_of(of);
}

TEST_F(PluginsOnADevice, LaunchNineKernelsForAStepAndThreeToGiveBackAndDrain) {
  const uint64_t before = calls(Call::kLaunch);
  (void)step(true, of_size(5000, 1));
  // Eight launches of the selection, one sum, and three for give_back and drain.
  EXPECT_EQ(calls(Call::kLaunch) - before, 12u);
}

TEST_F(PluginsOnADevice, SayWhereTheyWork) {
  EXPECT_EQ(device_types({"topk"}), kOnBoth);
  EXPECT_EQ(device_types({"topk", {{"scope", "bucket"}}}), kOnCpu);
  EXPECT_EQ(device_types({"topk", {{"value_type", "fp16"}}}), kOnBoth);
  EXPECT_EQ(test::MemoryInstance(simulated_plugin("memory", "residual")).describe().device_types,
            kOnBoth);
}

TEST_F(PluginsOnADevice, TellTheGradientThatTheDeviceRefuses) {
  const Compressor compressor({"topk"});
  Place place(true);
  PlacedGradient gradient(place, compressor, {.shape = {100}, .ranks = 1}, 0);
  PlacedPayload payload(place, gradient.planned());
  fail_call(Call::kLaunch, 2, 719);
  const test::Outcome outcome = gradient.encode(payload);
  EXPECT_EQ(outcome.code, uint32_t{PENSTOCK_DEVICE_ERROR});
  EXPECT_TRUE(contains(outcome.message, "cuda:1 cannot select from gradient 'gradient'"))
      << outcome.message;
}

}  // namespace penstock::simulated::plugins_test
