// For tests of rules: offers that the test gives by hand.
#pragma once

#include "core/fit/offers.hpp"

namespace penstock::test {

struct PlainOffers : Offers {
  std::vector<CompressorFacts> all_compressors;
  std::vector<MemoryFacts> all_memories;
  std::vector<CollectiveFacts> all_collectives;
  std::vector<SchedulerFacts> all_schedulers;

  std::vector<CompressorFacts> compressors() const override { return all_compressors; }
  std::vector<MemoryFacts> memories() const override { return all_memories; }
  std::vector<CollectiveFacts> collectives() const override { return all_collectives; }
  std::vector<SchedulerFacts> schedulers() const override { return all_schedulers; }
};

// Plugins of each kind, as replacements for a plugin that the rules refuse.
inline PlainOffers usual_offers(const CollectiveFacts& transport, const CompressorFacts& sparse) {
  PlainOffers all;
  all.all_compressors = {sparse};
  all.all_memories = {{.name = "residual", .keeps = true, .has_give_back = true},
                      {.name = "momentum", .owns_momentum = true, .keeps = true}};
  all.all_collectives = {transport};
  all.all_schedulers = {
      {"fusion", uint64_t{1} << PENSTOCK_ROUTE_FLAT, 0},
      {"partial", uint64_t{1} << PENSTOCK_ROUTE_FLAT, PENSTOCK_SCHEDULER_CHOOSES}};
  return all;
}

}  // namespace penstock::test
