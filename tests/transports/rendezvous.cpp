// Part of transport_ranks: the ranks meet as in a run, for transports that must be told the others.
#include "core/comm/rendezvous.hpp"

#include "rank.hpp"

#include <stdexcept>

namespace penstock::test {
namespace {

// Once per process: a transport that joins again gets the object of the first rendezvous.
Control& met(std::vector<uint32_t>& hosts) {
  static JoinedRanks joined = [] {
    Control::Options options;
    options.deadline_us = 600'000'000;
    options.heartbeat_us = 150'000'000;  // long, because the tests count allocations
    Result<std::optional<Rendezvous>> rendezvous = rendezvous_of();
    if (!rendezvous.ok()) throw std::runtime_error(std::string(rendezvous.status().message()));
    if (!rendezvous.value()) {
      Result<std::unique_ptr<Control>> alone = Control::start(std::move(options));
      return JoinedRanks{Group(), std::move(alone.value())};
    }
    Result<JoinedRanks> found = meet_at(*rendezvous.value(), std::move(options));
    if (!found.ok()) throw std::runtime_error(std::string(found.status().message()));
    return std::move(found.value());
  }();
  hosts = joined.world.hosts();
  return *joined.control;
}

// A plugin of the test kit's host must not get statuses of the core.
penstock_status* of_the_kit(const Status& status) {
  if (status.ok()) return nullptr;
  const std::string message(status.message());
  return test_host()->status_new(test_host()->context, PENSTOCK_DEADLINE_EXCEEDED,
                                 sdk::str(message));
}

}  // namespace

void give_up(const std::string& why) {
  std::vector<uint32_t> hosts;
  Control& control = met(hosts);
  control.abort(peer_failed("{}", why));
  control.stop();
}

void tell(penstock_world& world) {
  static std::vector<uint32_t> hosts;
  static penstock_key_value_store store{};
  Control& control = met(hosts);
  store.struct_size = sizeof store;
  store.context = &control;
  store.put = [](void* context, penstock_str key, penstock_str value) {
    return of_the_kit(static_cast<Control*>(context)->put(sdk::view(key), sdk::view(value)));
  };
  store.get = [](void* context, penstock_str key, uint64_t timeout_us, void* to,
                 void (*sink)(void* to, penstock_str value)) {
    const auto got = static_cast<Control*>(context)->get(sdk::view(key), timeout_us);
    if (got.ok()) sink(to, sdk::str(got.value()));
    return of_the_kit(got.status());
  };
  const auto rendezvous = rendezvous_of();
  world.hosts = hosts.data();
  world.size = static_cast<uint32_t>(hosts.size());
  world.rank = rendezvous.value() ? rendezvous.value()->rank : 0;
  world.store = &store;
}

}  // namespace penstock::test
