// See hub.hpp.
#include "hub.hpp"

#include "exchange.hpp"

#include <kernels/message.hpp>
#include <penstock/error.hpp>

#include <algorithm>
#include <chrono>
#include <condition_variable>

namespace penstock::loopback {

namespace {

// The hubs whose ranks are still joining, by name. This is the only global state of the plugin.
struct Registry {
  std::mutex mutex;
  std::condition_variable changed;
  std::map<std::string, std::shared_ptr<Hub>> gathering;
};

Registry& registry() {
  static Registry registry;
  return registry;
}

constexpr uint64_t kLongestWait = uint64_t(1) << 50;  // us; longer ones overflow the clock

}  // namespace

Hub::Hub(const Seat& first)
    : size_(first.size),
      hosts_(first.hosts),
      delay_(first.delay),
      present_(first.size),
      left_(first.size) {}

void Hub::admit(const Seat& seat) {
  if (seat.size != size_)
    throw sdk::Error(PENSTOCK_MISMATCH,
                     sdk::text("rank ", seat.rank, " joins hub '", seat.hub, "' with size ",
                               seat.size, ", earlier ranks with size ", size_));
  if (seat.hosts != hosts_)
    throw sdk::Error(PENSTOCK_MISMATCH,
                     sdk::text("rank ", seat.rank, " joins hub '", seat.hub,
                               "' with other hosts than earlier ranks; give all ranks an equal "
                               "option hosts"));
  if (present_[seat.rank])
    throw sdk::invalid_argument("rank ", seat.rank, " joins hub '", seat.hub,
                                "' twice; give every thread a rank of its own");
  present_[seat.rank] = true;
  complete_ = ++n_present_ == size_;
}

std::string Hub::missing() const {
  std::string ranks;
  for (uint32_t r = 0; r < size_; ++r)
    if (!present_[r]) ranks += (ranks.empty() ? "" : ", ") + std::to_string(r);
  return ranks;
}

std::shared_ptr<Hub> Hub::join(const Seat& seat, uint64_t timeout_us) {
  Registry& all = registry();
  std::unique_lock lock(all.mutex);
  std::shared_ptr<Hub>& entry = all.gathering[seat.hub];
  if (entry == nullptr) entry = std::make_shared<Hub>(seat);
  const std::shared_ptr<Hub> hub = entry;
  hub->admit(seat);
  if (hub->complete_) {
    all.gathering.erase(seat.hub);
    all.changed.notify_all();
    return hub;
  }
  const auto timeout = std::chrono::microseconds(std::min(timeout_us, kLongestWait));
  if (all.changed.wait_for(lock, timeout, [&] { return hub->complete_; })) return hub;
  const std::string missing = hub->missing();
  hub->present_[seat.rank] = false;
  if (--hub->n_present_ == 0) all.gathering.erase(seat.hub);
  throw sdk::Error(PENSTOCK_DEADLINE_EXCEEDED,
                   sdk::text("rank ", seat.rank, " waited ", sdk::seconds_text(timeout_us),
                             " at hub '", seat.hub, "' for ranks ", missing, " of ", seat.size));
}

void Hub::leave(uint32_t rank) {
  std::lock_guard lock(mutex_);
  left_[rank] = true;
  for (auto entry = exchanges_.begin(); entry != exchanges_.end();) {
    const auto& members = entry->second->members();
    const auto member = std::lower_bound(members.begin(), members.end(), rank);
    const bool mine = member != members.end() && *member == rank;
    const bool over = mine && entry->second->leave(static_cast<uint32_t>(member - members.begin()));
    entry = over ? exchanges_.erase(entry) : std::next(entry);
  }
}

void Hub::close(const Exchange& exchange, uint32_t group_rank) {
  std::lock_guard lock(mutex_);
  for (auto entry = exchanges_.begin(); entry != exchanges_.end(); ++entry) {
    if (entry->second.get() != &exchange) continue;
    if (entry->second->leave(group_rank)) exchanges_.erase(entry);
    return;
  }
}

std::shared_ptr<Exchange> Hub::open(const penstock_group& group) {
  const std::vector<uint32_t> members(group.world_ranks, group.world_ranks + group.size);
  if (group.rank >= group.size || !std::is_sorted(members.begin(), members.end()) ||
      members.back() >= size_)
    throw sdk::invalid_argument("group ", group.id, " must list ranks of a world of ", size_,
                                " in ascending order");
  const uint32_t me = members[group.rank];
  std::lock_guard lock(mutex_);
  auto& n_openings = n_openings_[group.id];
  n_openings.resize(size_);
  auto& exchange = exchanges_[{group.id, n_openings[me]++}];
  if (exchange == nullptr) {
    exchange = std::make_shared<Exchange>(members, delay_);
    for (uint32_t r = 0; r < group.size; ++r)
      if (left_[members[r]]) (void)exchange->leave(r);
  } else if (exchange->members() != members) {
    throw sdk::Error(PENSTOCK_MISMATCH,
                     sdk::text("rank ", me, " opens group ", group.id, " with ", group.size,
                               " members that differ from the members of a rank that opened it "
                               "before"));
  }
  return exchange;
}

}  // namespace penstock::loopback
