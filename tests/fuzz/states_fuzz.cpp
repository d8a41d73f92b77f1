// Every built compressor continues from invented states, because a checksum does not protect a
// saved state against forgery. For any bytes, a step must stay within its buffers and leave equal
// states on all ranks. A single call may also return an error.
#include <cstring>
#include <fuzz/settings.hpp>
#include <memory>
#include <penstock/views.hpp>
#include <support/every_compressor.hpp>
#include <testing/gtest.hpp>
#include <testing/rig.hpp>

namespace penstock::test {
namespace {

const std::vector<Shape> kStateShapes{{0}, {1}, {31}, {7, 9}, {24, 40}, {2100}};
constexpr uint64_t kFills = 6;

// Equal on every rank, as replicated states are: NaN and the largest integers, large finite
// numbers, negative numbers, and then random bytes.
void fill_states(CompressorRig& rig, uint64_t fill) {
  constexpr unsigned char kSame[] = {0xff, 0x7f, 0xc1};
  for (uint32_t rank = 0; rank < rig.ranks(); ++rank) {
    Random random(fill);
    for (uint64_t i = 0; i < rig.n_items(); ++i) {
      const penstock_item& item = *rig.compressor_item(rank, i);
      for (uint64_t s = 0; s < item.n_states; ++s) {
        const penstock_tensor& state = *item.states[s];
        auto* const bytes = static_cast<unsigned char*>(state.data);
        for (uint64_t b = 0; b < state.numel * sdk::dtype_bytes(state.dtype); ++b)
          bytes[b] =
              fill < std::size(kSame) ? kSame[fill] : static_cast<unsigned char>(random.bits());
      }
    }
  }
}

// Runs each round of an item alone, with states that no earlier round has written.
void call_alone(CompressorRig& rig, uint64_t item, uint64_t fill) {
  const CompressorInstance& compressor = rig.compressor(0);
  const penstock_step step = rig.step_facts(0);
  const PlannedNeed& need = rig.need(item, step.phase);
  for (uint32_t round = 0; round < need.rounds.size(); ++round) {
    const penstock_item* const view = rig.compressor_item(0, item);
    const std::vector<float> values = heavy_tailed(view->numel, fill);
    std::copy(values.begin(), values.end(), static_cast<float*>(view->work.data));
    OwnedPayload payload(need.rounds[round].sections, 0);
    penstock_payload* pointer = payload.c();
    penstock_exec exec = rig.exec();
    fill_states(rig, fill);
    const Outcome encoded =
        take(compressor.table().encode(compressor.self(), &exec, &step, round, &view, 1, &pointer));
    ASSERT_TRUE(payload.intact()) << "encode of round " << round;
    if (!encoded.ok()) continue;
    if (need.rounds[round].c.combine == PENSTOCK_COMBINE_SUM) pointer->rank = -1;
    const penstock_payload* received = pointer;
    exec = rig.exec();
    fill_states(rig, fill);
    (void)take(compressor.table().decode(compressor.self(), &exec, &step, round, &view, 1,
                                         &received, 1,
                                         PENSTOCK_DECODE_FIRST | PENSTOCK_DECODE_LAST));
  }
}

class StatesFuzz : public ::testing::TestWithParam<std::filesystem::path> {};

TEST_P(StatesFuzz, AnyBytesInStatesLeaveStepsWithinTheirBuffers) {
  const LoadedPlugin plugin = load_plugin(GetParam().string());
  for (const OptionSettings& settings : settings_of(plugin)) {
    SCOPED_TRACE(label_of(settings));
    std::unique_ptr<CompressorRig> rig;
    try {
      rig = std::make_unique<CompressorRig>(RigSettings{.ranks = 2, .keep = true}, kStateShapes,
                                            plugin, settings);
    } catch (const std::runtime_error&) {
      continue;  // needs another option
    }
    std::vector<uint64_t> numels;
    for (uint64_t i = 0; i < rig->n_items(); ++i) numels.push_back(rig->numel(i));
    for (uint64_t fill = 0; fill < kFills; ++fill)
      for (uint32_t phase = 0; phase < rig->period(); ++phase) {
        for (uint64_t i = 0; i < rig->n_items(); ++i)
          ASSERT_NO_FATAL_FAILURE(call_alone(*rig, i, fill)) << "fill " << fill << ", item " << i;
        fill_states(*rig, fill);
        // Checks every guard, also for the earlier calls.
        ASSERT_NO_THROW(rig->step(draw_gradients(heavy_tailed, 2, numels, rig->steps())))
            << "fill " << fill;
      }
  }
}

PENSTOCK_TEST_EVERY_COMPRESSOR(StatesFuzz);

}  // namespace
}  // namespace penstock::test
