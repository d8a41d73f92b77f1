// Cases of compressors whose payload is one section of values that the ranks add.
#pragma once

#include "compressor_cases.hpp"

namespace penstock::test {

// A gradient of 40 elements sends `entries` values. A sum with another count or dtype is refused,
// and a sum without a payload gives zeros.
inline void expect_sums_are_input(const LoadedPlugin& plugin, const OptionSettings& options,
                                  uint64_t entries) {
  CompressorRig rig({.ranks = 2}, {{40}}, plugin, options);
  OwnedPayload payload(rig.need(0).rounds[0].sections, -1);
  payload.c()->kind = PENSTOCK_PAYLOAD_CODED;
  for (const uint64_t count : {uint64_t{0}, entries - 1, entries + 1, UINT64_MAX}) {
    payload.section(0).count = count;
    EXPECT_TRUE(refuses(rig, payload, "gradient 'gradient0'"));
  }
  payload.section(0).count = entries;
  payload.section(0).dtype = PENSTOCK_FLOAT64;
  EXPECT_TRUE(refuses(rig, payload, "another dtype"));
  payload.c()->kind = PENSTOCK_PAYLOAD_ABSENT;
  EXPECT_TRUE(decode_once(rig, payload).ok());
  const auto* out = static_cast<const float*>(rig.compressor_item(0, 0)->out.data);
  EXPECT_EQ(std::vector<float>(out, out + 40), std::vector<float>(40));
}

}  // namespace penstock::test
