// ucx: messages over UCX (tested with 1.13).
#include "driver.hpp"
#include "place.hpp"
#include "wire.hpp"

#include <penstock/collective.hpp>

#include <collectives/device_memory.hpp>
#include <collectives/direct.hpp>
#include <collectives/messages.hpp>

#include <mutex>
#include <optional>

namespace penstock::ucx {
namespace {

class Ucx : public collectives::OverWire {
 public:
  static inline const sdk::OptionList options{
      collectives::Sizes::small_option(),
      collectives::Sizes::segment_option(),
      sdk::string_option("transports", "")
          .rank_local()
          .summary("transports that UCX may use, as in tcp,self; empty: UCX_TLS if it is set, else "
                   "all transports"),
      sdk::string_option("devices", "")
          .rank_local()
          .summary("network devices that UCX may use, as in eth0; empty: UCX_NET_DEVICES if it is "
                   "set, else all devices"),
      sdk::string_option("ports", "")
          .rank_local()
          .summary("ports at which UCX's TCP listens, as in 20000-20099; empty: UCX_TCP_PORT_RANGE "
                   "if it is set, else ports that the system chooses"),
      sdk::integer_option("socket_buffer_bytes", 0)
          .at_least(0)
          .at_most(1 << 30)
          .unit("bytes")
          .rank_local()
          .summary("in flight in a TCP connection; 0: UCX_TCP_SNDBUF if it is set, else a share of "
                   "294912 if several ranks send to this rank, else the value of the system"),
      collectives::DeviceMemory::option()};

  explicit Ucx(const sdk::Options& values)
      : OverWire(collectives::Sizes(values)),
        selection_{std::string(values.string("transports")), std::string(values.string("devices"))},
        device_memory_(values) {
    if (const int64_t bytes = values.integer("socket_buffer_bytes"); bytes != 0)
      selection_.socket_buffer = std::to_string(bytes);
    selection_.ports = range_of_ports(values.string("ports"));
  }
  ~Ucx() { leave(true); }
  Ucx(const Ucx&) = delete;
  Ucx& operator=(const Ucx&) = delete;

  void describe(penstock_collective_traits& traits) const {
    collectives::describe(traits);
    device_memory_.describe(traits);
    traits.flags |= PENSTOCK_COLLECTIVE_IS_NOTIFIED;
  }

  // The caller has set rank, size and hosts; join does not change them.
  void join(uint64_t timeout_us, penstock_world& world) {
    const std::lock_guard lock(mutex_);
    if (world_)
      throw sdk::Error(PENSTOCK_FAILED_PRECONDITION,
                       "collective/ucx has already joined; leave before joining again");
    if (world.size > kMostRanks)
      throw sdk::invalid_argument("collective/ucx carries up to ", kMostRanks, " ranks, not ",
                                  world.size);
    const bool has_store =
        PENSTOCK_HAS_FIELD(&world, penstock_world, store) && world.store != nullptr;
    if (world.size > 1 && !has_store)
      throw sdk::Error(PENSTOCK_FAILED_PRECONDITION,
                       "collective/ucx finds the other ranks through the run's store, and join was "
                       "given none; the host must be of ABI 0.4 or newer");
    uint32_t n_senders = 0;
    for (uint32_t r = 0; r < world.size; ++r)
      n_senders += world.hosts[r] != world.hosts[world.rank] ? 1 : 0;
    Selection selection = selection_;
    // If no rank lies on another host, UCX need not listen for other hosts.
    if (n_senders == 0 && leaves_tcp_open(selection) &&
        (world.size == 1 || share_network(*world.store, world.rank, world.size, timeout_us)))
      selection.devices = loopback_device();
    world_.emplace(selection, world.rank, world.size, n_senders, device_memory_.is_wanted());
    device_memory_.learn(world_->takes_cuda());
    if (world.size == 1) return;
    try {
      world_->connect(*world.store, world.hosts, timeout_us);
      driver_.emplace(*world_, mutex_);
    } catch (...) {
      world_.reset();
      throw;
    }
  }

  std::unique_ptr<Channel> open(const sdk::OpenCall& call) {
    const std::lock_guard lock(mutex_);
    if (!world_)
      throw sdk::Error(PENSTOCK_FAILED_PRECONDITION,
                       "collective/ucx must join before it opens a group");
    std::vector<uint32_t> members(call.group.world_ranks, call.group.world_ranks + call.group.size);
    const uint64_t number =
        world_->number_of_channel(members, call.group.rank, call.group.id, call.timeout_us);
    auto channel = std::make_unique<Channel>();
    collectives::set_up(*channel, call.group, sizes_);
    channel->takes_devices = device_memory_.is_taken();
    channel->wire = std::make_unique<Wire>(*world_, number, std::move(members));
    return channel;
  }

  Ticket* submit(Channel& channel, const penstock_message& message) {
    const std::lock_guard lock(mutex_);
    Ticket* const ticket = OverWire::submit(channel, message);
    ++n_under_way_;
    if (driver_) driver_->pause();
    return ticket;
  }

  bool progress(Ticket& ticket) {
    const std::lock_guard lock(mutex_);
    if (!OverWire::progress(ticket)) return false;
    end(ticket);
    return true;
  }

  void release(Ticket* ticket) {
    const std::lock_guard lock(mutex_);
    end(*ticket);
    OverWire::release(ticket);
  }

  void close(std::unique_ptr<Channel> channel) {
    const std::lock_guard lock(mutex_);
    if (!channel->aborted) collectives::collect(*channel);
    // A channel whose memory UCX may still use stays until the endpoints are gone.
    if (static_cast<Wire&>(*channel->wire).is_used()) unfinished_.push_back(std::move(channel));
  }

  void leave(bool aborted) {
    driver_.reset();
    if (world_ && !aborted) world_->part();
    world_.reset();
    unfinished_.clear();
    n_under_way_ = 0;
  }

 private:
  // The caller does not call `progress` again if no message is under way.
  void end(Ticket& ticket) {
    if (ticket.reported) return;
    ticket.reported = true;
    if (--n_under_way_ == 0 && driver_) driver_->begin();
  }

  Selection selection_;
  collectives::DeviceMemory device_memory_;
  uint64_t n_under_way_ = 0;  // messages of all channels whose end was not reported
  // closed channels whose memory UCX may still use
  std::vector<std::unique_ptr<Channel>> unfinished_;
  std::mutex mutex_;  // held while UCX is called
  std::optional<World> world_;
  std::optional<Driver> driver_;  // of a world of several ranks
};

}  // namespace
}  // namespace penstock::ucx

PENSTOCK_COLLECTIVE(penstock::ucx::Ucx, "collective/ucx", "0.1.0",
                    "messages over UCX, without a launcher of its own; sums in ascending rank "
                    "order, equal bits on all ranks",
                    "");
