// Gradients that are summed as they are (decision 0003): their message is the storage that they lie
// in, where they lie behind each other in the order of the message, as in a bucket of DDP.
// Elsewhere they are copied together and back.
#pragma once

#include "core/bucket/sums.hpp"

namespace penstock {

struct PlainMessage final : SumMessage {
  // Its size, and room for a copy, of which in host memory no page is taken before it is needed.
  // OUT_OF_MEMORY. [control]
  Status make_room(uint32_t round) override;
  Status before_encode(uint32_t round) override;
  Status prepare(Leg&, uint32_t) override { return {}; }
  Status before_decode() override;
};

}  // namespace penstock
