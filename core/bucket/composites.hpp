// Messages of a composite collective. It receives the pairs of this rank, combines the pairs of all
// ranks by its own rule, and gives the pairs that it refuses back.
#pragma once

#include "core/bucket/messages.hpp"

namespace penstock {

class StateView;

struct CompositeMessage final : MessageRun {
  std::vector<const penstock_item*> item_pointers;
  std::vector<const penstock_payload*> payload_pointers;
  std::vector<penstock_payload*> result_pointers;
  std::vector<penstock_payload*> refused_pointers;
  std::vector<const penstock_tensor*> states;
  std::vector<StateView*> state_views;  // the views behind `states`
  Buffer scratch;
  penstock_exec exec{};

  std::string_view name() const override { return "composite"; }
  Status prepare(Leg& leg, uint32_t round) override;
  // Every pair is taken, and nothing is refused.
  void echo(uint32_t round) override;
  Status collect(Channel& channel, penstock_ticket* ticket) override;
};

// Makes the message of the items that travel over the composite collective. [control]
Status lay_out_composite(BucketRun& bucket, Leg& leg, StateStore& states, uint32_t round,
                         std::vector<size_t> items);

}  // namespace penstock
