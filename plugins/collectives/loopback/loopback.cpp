// loopback: the ranks are threads of one process. For tests and first trials.
#include "exchange.hpp"
#include "hub.hpp"

#include <penstock/collective.hpp>

#include <kernels/message.hpp>

#include <algorithm>
#include <charconv>

namespace penstock::loopback {
namespace {

constexpr int64_t kMostRanks = 4096;

// Parses the numbers of hosts, which must be in the order of their first appearance.
std::vector<uint32_t> hosts_of(std::string_view text, uint32_t size) {
  if (text.empty()) return std::vector<uint32_t>(size);
  std::vector<uint32_t> hosts;
  uint32_t n_hosts = 0;
  const char* const end = text.data() + text.size();
  for (const char* at = text.data(); at <= end;) {
    uint32_t host = 0;
    const auto [next, error] = std::from_chars(at, end, host);
    if (error != std::errc() || host > n_hosts || (next != end && *next != ',')) break;
    n_hosts = std::max(n_hosts, host + 1);
    hosts.push_back(host);
    at = next + 1;
    if (next == end && hosts.size() == size) return hosts;
  }
  throw sdk::invalid_argument("collective/loopback: hosts is \"", text, "\", expected ", size,
                              " numbers from 0, each host's first one after those before it, as in "
                              "0,0,1");
}

class Loopback {
 public:
  using Ticket = loopback::Ticket;
  static constexpr uint64_t kMeanDtypes = kernels::mean_dtypes();
  struct Channel {
    std::shared_ptr<Exchange> exchange;  // shared with the other members
    uint32_t rank = 0;
    std::vector<std::unique_ptr<Ticket>> tickets;  // all tickets that were ever made
    std::vector<Ticket*> free;
  };

  static inline const sdk::OptionList options{
      sdk::string_option("hub", "default")
          .rank_local()
          .summary("name of the rendezvous point; all ranks of a run use one name"),
      sdk::integer_option("rank", 0)
          .rank_local()
          .at_least(0)
          .at_most(kMostRanks - 1)
          .summary("this rank"),
      sdk::integer_option("size", 1)
          .rank_local()
          .at_least(1)
          .at_most(kMostRanks)
          .unit("ranks")
          .summary("ranks of the run"),
      sdk::string_option("hosts", "")
          .rank_local()
          .summary(
              "the simulated host of each rank, as in 0,0,1; empty: all ranks are on one host"),
      sdk::real_option("latency_us", 0)
          .rank_local()
          .at_least(0)
          .unit("us")
          .summary("time that every message takes on a simulated link; the link is busy for that "
                   "time"),
      sdk::real_option("us_per_byte", 0)
          .rank_local()
          .at_least(0)
          .unit("us/byte")
          .summary("additional time for each byte that a rank sends"),
      sdk::bool_option("ordered", false)
          .summary("wants messages in one order on all ranks, as some transports do")};

  explicit Loopback(const sdk::Options& values)
      : seat_{std::string(values.string("hub")),
              static_cast<uint32_t>(values.integer("rank")),
              static_cast<uint32_t>(values.integer("size")),
              {},
              {values.real("latency_us"), values.real("us_per_byte")}},
        ordered_(values.boolean("ordered")) {
    if (seat_.rank >= seat_.size)
      throw sdk::invalid_argument("collective/loopback: rank is ", seat_.rank,
                                  ", expected less than size, which is ", seat_.size);
    seat_.hosts = hosts_of(values.string("hosts"), seat_.size);
  }
  ~Loopback() { leave(true); }
  Loopback(const Loopback&) = delete;
  Loopback& operator=(const Loopback&) = delete;

  void describe(penstock_collective_traits& traits) const {
    traits.patterns = sdk::transport_patterns();
    traits.dtypes = kernels::reducible_dtypes();
    traits.device_types = uint64_t(1) << PENSTOCK_DEVICE_CPU;
    traits.abort_bound_us = 100'000;
    traits.flags = PENSTOCK_COLLECTIVE_TRANSPORT | PENSTOCK_COLLECTIVE_SAME_BITS |
                   PENSTOCK_COLLECTIVE_RANK_ORDER |
                   (ordered_ ? uint32_t{PENSTOCK_COLLECTIVE_ORDERED} : 0u);
    traits.max_in_flight = 0;
  }

  void volume(uint32_t pattern, uint32_t hosts, uint32_t ranks_per_host, uint64_t bytes,
              penstock_volume& within, penstock_volume& between) const {
    sdk::direct_volume(pattern, hosts, ranks_per_host, bytes, within, between);
  }

  void join(uint64_t timeout_us, penstock_world& world) {
    if (hub_ != nullptr)
      throw sdk::Error(PENSTOCK_FAILED_PRECONDITION,
                       sdk::text("collective/loopback: rank ", seat_.rank,
                                 " has already joined; make an instance of its own for each rank, "
                                 "or leave before joining again"));
    hub_ = Hub::join(seat_, timeout_us);
    world.hosts = hub_->hosts();
    world.rank = seat_.rank;
    world.size = seat_.size;
  }

  std::unique_ptr<Channel> open(const sdk::OpenCall& call) {
    if (hub_ == nullptr)
      throw sdk::Error(PENSTOCK_FAILED_PRECONDITION,
                       "collective/loopback must join before it opens a group");
    auto channel = std::make_unique<Channel>();
    channel->exchange = hub_->open(call.group);
    channel->rank = call.group.rank;
    return channel;
  }

  Ticket* submit(Channel& channel, const penstock_message& message) {
    sdk::check_message(message, channel.exchange->size());
    if (channel.free.empty())
      channel.free.push_back(channel.tickets.emplace_back(std::make_unique<Ticket>()).get());
    Ticket* ticket = channel.free.back();
    *ticket = Ticket{};
    ticket->channel = &channel;
    ticket->message = message;
    ticket->rank = channel.rank;
    ticket->submitted = std::chrono::steady_clock::now();
    channel.exchange->submit(*ticket);
    channel.free.pop_back();
    return ticket;
  }

  bool progress(Ticket& ticket) { return owner(ticket).exchange->progress(ticket); }

  void release(Ticket* ticket) {
    Channel& channel = owner(*ticket);
    channel.exchange->release(*ticket);
    channel.free.push_back(ticket);
  }

  void abort(Channel& channel) { channel.exchange->abort(channel.rank); }

  void close(std::unique_ptr<Channel> channel) {
    if (hub_ != nullptr) hub_->close(*channel->exchange, channel->rank);
  }

  void leave(bool) {
    if (hub_ != nullptr) hub_->leave(seat_.rank);
    hub_.reset();
  }

 private:
  static Channel& owner(const Ticket& ticket) { return *static_cast<Channel*>(ticket.channel); }

  Seat seat_;
  bool ordered_;
  std::shared_ptr<Hub> hub_;  // shared with the other ranks
};

}  // namespace
}  // namespace penstock::loopback

PENSTOCK_COLLECTIVE(penstock::loopback::Loopback, "collective/loopback", "0.1.0",
                    "ranks are threads of one process and find each other by a name; for tests",
                    "");
