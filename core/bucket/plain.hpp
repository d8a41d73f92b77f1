// Gradients that are summed unchanged (decision 0003). If they lie one after another in the order
// of the message, as in a bucket of DDP, their storage is the message. If they do not, they are
// copied into one buffer and back.
#pragma once

#include "core/bucket/sums.hpp"

namespace penstock {

struct PlainMessage final : SumMessage {
  // Sets the size of the message, and makes room for a copy; host memory takes no page before the
  // copy is needed. OUT_OF_MEMORY. [control]
  Status make_room(uint32_t round) override;
  Status before_encode(uint32_t round) override;
  Status prepare(Leg&, uint32_t) override { return {}; }
  Status before_decode() override;
};

}  // namespace penstock
