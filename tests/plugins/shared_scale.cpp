// Eight bits per value, with a scale that all ranks share. Round 0 finds the largest magnitude of
// all ranks. Round 1 sends every value as a multiple of 1/127 of this magnitude.
#include <penstock/compressor.hpp>

#include <algorithm>
#include <cmath>

namespace sdk = penstock::sdk;

class SharedScale {
 public:
  static inline const sdk::OptionList options{};
  explicit SharedScale(const sdk::Options&) {}

  void describe(penstock_compressor_traits& traits) const {
    traits.flags = PENSTOCK_COMPRESSOR_NEEDS_MEMORY;  // rounding loses mass in every step
  }

  void plan(const sdk::PlanCall&, const sdk::Item& item, sdk::CompressorNeed& need) {
    need.round(PENSTOCK_COMBINE_GATHER).section(PENSTOCK_ROLE_SCALES, PENSTOCK_FLOAT32, 1);
    need.round(PENSTOCK_COMBINE_GATHER).section(PENSTOCK_ROLE_VALUES, PENSTOCK_INT8, item.numel());
    // The result of round 0 must live until round 1. Other buckets may come in between.
    need.states.add("scale", 1, 1, PENSTOCK_STATE_REPLICATED);
  }

  void encode(const sdk::Call& call, const sdk::Item& item, sdk::PayloadWriter& payload) {
    payload.kind(PENSTOCK_PAYLOAD_CODED);
    const std::span<float> work = item.work();
    if (call.round == 0) {
      float largest = 0;
      for (const float value : work) largest = std::max(largest, std::abs(value));
      payload.room<float>(0)[0] = largest;
      payload.count(0, 1);
      return;
    }
    const float unit = item.state(0)[0] / 127;
    const std::span<int8_t> codes = payload.room<int8_t>(0);
    for (uint64_t i = 0; i < work.size(); ++i) {
      const float code = unit > 0 ? std::clamp(std::round(work[i] / unit), -127.0f, 127.0f) : 0;
      codes[i] = static_cast<int8_t>(code);
      if (item.keeps()) work[i] -= code * unit;  // only in the last round
    }
    payload.count(0, work.size());
  }

  void decode(const sdk::Call& call, const sdk::Items& items, const sdk::PayloadReaders& payloads) {
    for (uint64_t i = 0; i < items.size(); ++i)
      for (uint64_t r = 0; r < payloads.n_ranks(); ++r) {
        // The payloads of the ranks may come in several calls. The first call clears.
        const bool clears = (call.flags & PENSTOCK_DECODE_FIRST) != 0 && r == 0;
        if (call.round == 0)
          read_scale(items[i], payloads.at(i, r), clears);
        else
          add_values(items[i], payloads.at(i, r), clears);
      }
  }

 private:
  static void read_scale(const sdk::Item& item, const sdk::PayloadReader& payload, bool clears) {
    float& scale = item.state(0)[0];
    if (clears) scale = 0;
    if (payload.absent()) return;
    const float theirs = payload.section<float>(0, 1)[0];
    if (!(theirs >= 0) || !std::isfinite(theirs)) throw payload.error("has the scale ", theirs);
    scale = std::max(scale, theirs);
  }

  static void add_values(const sdk::Item& item, const sdk::PayloadReader& payload, bool clears) {
    const std::span<float> out = item.out();
    if (clears) std::fill(out.begin(), out.end(), 0.0f);
    if (payload.absent()) return;
    const float unit = item.state(0)[0] / 127;
    const std::span<const int8_t> codes = payload.section<int8_t>(0, out.size());
    for (uint64_t i = 0; i < out.size(); ++i) out[i] += static_cast<float>(codes[i]) * unit;
  }
};

PENSTOCK_COMPRESSOR(SharedScale, "compressor/shared-scale", "1.0.0",
                    "eight bits a value on a scale that all ranks share", "");
