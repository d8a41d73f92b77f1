// See world.hpp.
#include "world.hpp"

#include "wire.hpp"

#include <penstock/error.hpp>

namespace penstock::borrowed {

void World::add(uint64_t group, Wire& wire) {
  if (!wires_.try_emplace(group, &wire).second)
    throw sdk::internal("collective/borrowed has opened group ", group, " already");
  const auto early = early_.find(group);
  if (early == early_.end()) return;
  for (Arrival& arrival : early->second) wire.came(arrival.from, std::move(arrival.frame));
  early_.erase(early);
}

void World::progress() {
  const uint32_t n_gone = relay_->take(arrivals_, sent_);
  for (Arrival& arrival : arrivals_) {
    const uint64_t group = arrival.frame.label().group;
    const auto wire = wires_.find(group);
    if (wire != wires_.end())
      wire->second->came(arrival.from, std::move(arrival.frame));
    else
      early_[group].push_back(std::move(arrival));
  }
  for (const Sent& sent : sent_) {
    const auto wire = wires_.find(sent.group);
    if (wire != wires_.end()) wire->second->sent(sent.request);
  }
  if (n_gone == n_gone_) return;
  n_gone_ = n_gone;
  for (const auto& [group, wire] : wires_) wire->give_up_on_gone();
}

}  // namespace penstock::borrowed
