#include "core/comm/rendezvous.hpp"

#include "core/control/address.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <map>

namespace penstock {
namespace {

// Equal on the ranks of one host, and different on different hosts, even if their names are equal.
std::string name_of_this_host() {
  char name[256] = {};
  (void)gethostname(name, sizeof(name) - 1);
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  return fmt::format("{} {}", name, boot);
}

// Numbers hosts from 0, in the order in which they first appear.
std::vector<uint32_t> numbered(const std::vector<std::string>& names) {
  std::map<std::string_view, uint32_t> numbers;
  std::vector<uint32_t> hosts;
  for (const std::string& name : names)
    hosts.push_back(numbers.try_emplace(name, static_cast<uint32_t>(numbers.size())).first->second);
  return hosts;
}

// Rank 0 waits this long for ranks of another run that was started at this moment at this address.
constexpr uint64_t kSettleUs = 1'000'000;

constexpr uint64_t kAddressBytes = 16384;
constexpr uint64_t kPlaceTag = (uint64_t{1} << 20) - 2;  // must differ from the tag of the address

// The place of each rank for TCP. Names of hosts are not enough, because containers and network
// namespaces may share a name.
Result<std::vector<uint64_t>> exchange_places(Communication& communication, Channel& world,
                                              uint64_t deadline_us) {
  const uint32_t size = world.members.size();
  const uint64_t own = control::network_place();
  std::vector<uint64_t> places(size, own);
  if (size == 1) return places;
  const std::vector<uint64_t> by_transport(world.members.hosts().begin(),
                                           world.members.hosts().end());
  if ((world.traits.patterns & PENSTOCK_PATTERN_BIT(PENSTOCK_ALL_GATHER)) == 0) return by_transport;
  std::vector<uint64_t> counts(size, sizeof own), offsets(size);
  for (uint32_t r = 0; r < size; ++r) offsets[r] = r * sizeof own;
  penstock_message message{};
  message.struct_size = sizeof message;
  message.pattern = PENSTOCK_ALL_GATHER;
  message.dtype = PENSTOCK_UINT8;
  message.count = sizeof own;
  message.send = &own;
  message.receive = places.data();
  message.receive_counts = counts.data();
  message.receive_offsets = offsets.data();
  message.flags = PENSTOCK_MESSAGE_EXACT_COUNTS;
  message.tag = kPlaceTag;
  message.deadline_us = deadline_us;
  PENSTOCK_TRY(communication.transfer_and_wait(&world, message));
  // If some system does not give its place, the hosts of the transport are used.
  return std::count(places.begin(), places.end(), uint64_t{0}) == 0 ? places : by_transport;
}

// Sends rank 0's address of the store over the transport.
Result<std::string> exchange_address(Communication& communication, Channel& world,
                                     uint64_t deadline_us, const std::string& mine) {
  std::string buffer(kAddressBytes, '\0');
  if (mine.size() >= kAddressBytes)
    return internal("the address of rank 0 takes {} bytes, at most {} fit", mine.size(),
                    kAddressBytes);
  std::memcpy(buffer.data(), mine.data(), mine.size());
  penstock_message message{};
  message.struct_size = sizeof message;
  message.pattern = PENSTOCK_BROADCAST;
  message.dtype = PENSTOCK_UINT8;
  message.count = kAddressBytes;
  message.send = buffer.data();
  message.receive = buffer.data();
  message.deadline_us = deadline_us;
  PENSTOCK_TRY(communication.transfer_and_wait(&world, message));
  return std::string(buffer.c_str());
}

// `places`: one per rank. Two ranks share a place if the values are equal.
template <typename Place>
void note_places(Control::Options& options, const std::vector<Place>& places) {
  const auto is_with_server = [&](const Place& place) { return place == places.front(); };
  options.server_is_here = is_with_server(places[options.rank]);
  options.all_are_here = std::all_of(places.begin(), places.end(), is_with_server);
}

// Opens the control plane, over which the ranks then exchange their places. `how`: the way in which
// the ranks meet, for messages.
Result<JoinedRanks> begin(Control::Options options, std::string_view how) {
  const uint32_t rank = options.rank;
  const uint64_t deadline_us = options.deadline_us;
  const auto begun = [&]() -> Result<JoinedRanks> {
    PENSTOCK_ASSIGN(std::unique_ptr<Control> control, Control::start(std::move(options)));
    PENSTOCK_ASSIGN(const std::vector<std::string> names,
                    control->gather("hosts", name_of_this_host(), {}, deadline_us));
    PENSTOCK_ASSIGN(Group world, Group::joined(rank, numbered(names)));
    return JoinedRanks{std::move(world), std::move(control)};
  };
  Result<JoinedRanks> joined = begun();
  if (!joined.ok()) return joined.status().with_context(how);
  return joined;
}

}  // namespace

Result<JoinedRanks> meet_over(Communication& communication, Channel& world, uint64_t deadline_us,
                              Control::Options options) {
  PENSTOCK_ASSIGN(const std::vector<uint64_t> places,
                  exchange_places(communication, world, deadline_us));
  options.rank = world.members.rank();
  options.size = world.members.size();
  note_places(options, places);
  options.exchange_address = [&, deadline_us](const std::string& mine) {
    return exchange_address(communication, world, deadline_us, mine);
  };
  PENSTOCK_ASSIGN(std::unique_ptr<Control> control, Control::start(std::move(options)));
  return JoinedRanks{world.members, std::move(control)};
}

Result<JoinedRanks> meet_at(const Rendezvous& rendezvous, Control::Options options) {
  options.rank = rendezvous.rank;
  options.size = rendezvous.size;
  options.place = {rendezvous.host, rendezvous.port, rendezvous.token,
                   rendezvous.may_be_shared ? kSettleUs : 0};
  return begin(
      std::move(options),
      fmt::format("rendezvous with the other ranks, by the variables {}", rendezvous.said));
}

Result<JoinedRanks> meet_through(const Introduction& introduction, Control::Options options) {
  options.rank = introduction.rank;
  options.size = introduction.size;
  if (introduction.size > 1) {
    const auto gather = [&introduction, timeout_us = options.rendezvous_us,
                         warning_us = options.warning_us](const std::string& mine) {
      return introduction.gather(mine, timeout_us, warning_us);
    };
    PENSTOCK_ASSIGN(const std::vector<std::string> places,
                    gather(std::to_string(control::network_place())));
    note_places(options, places);
    options.exchange_address = [gather](const std::string& mine) -> Result<std::string> {
      PENSTOCK_ASSIGN(std::vector<std::string> addresses, gather(mine));
      return std::move(addresses.front());
    };
  }
  return begin(std::move(options),
               fmt::format("rendezvous with the other ranks of {}", introduction.by));
}

}  // namespace penstock
