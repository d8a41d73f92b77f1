// mpi: messages over MPI (Open MPI 4.1 is what it is tested with).
#include "direct.hpp"
#include "library.hpp"
#include "native.hpp"

#include <penstock/collective.hpp>

#include <kernels/message.hpp>

#include <algorithm>
#include <optional>

namespace penstock::mpi {
namespace {

class Mpi {
 public:
  using Channel = mpi::Channel;
  using Ticket = mpi::Ticket;

  static inline const sdk::OptionList options{
      sdk::choice_option("algorithm", "auto", {"auto", "direct", "native"})
          .summary("direct adds in rank order, equal bits everywhere; native is MPI's own; auto "
                   "is direct"),
      sdk::integer_option("small_bytes", 4096)
          .at_least(0)
          .at_most(1 << 20)
          .unit("bytes")
          .summary("all-reduces up to this size take one step instead of two"),
      sdk::integer_option("segment_bytes", 0)
          .at_least(0)
          .at_most(static_cast<int64_t>(kLongSegment))
          .unit("bytes")
          .summary("what travels at a time; 0: 262144 within a host, 61440 between hosts")};

  explicit Mpi(const sdk::Options& values)
      : native_(values.choice("algorithm") == "native"),
        small_bytes_(static_cast<uint64_t>(values.integer("small_bytes"))),
        segment_bytes_(static_cast<uint64_t>(values.integer("segment_bytes"))) {}
  Mpi(const Mpi&) = delete;
  Mpi& operator=(const Mpi&) = delete;

  void describe(penstock_collective_traits& traits) const {
    traits.patterns = sdk::transport_patterns();
    traits.dtypes = kernels::reducible_dtypes();
    traits.device_types = uint64_t(1) << PENSTOCK_DEVICE_CPU;
    traits.abort_bound_us = 100'000;
    traits.flags = PENSTOCK_COLLECTIVE_TRANSPORT | PENSTOCK_COLLECTIVE_PROCESS_GLOBAL;
    traits.flags |= native_ ? PENSTOCK_COLLECTIVE_ORDERED
                            : PENSTOCK_COLLECTIVE_SAME_BITS | PENSTOCK_COLLECTIVE_RANK_ORDER;
    traits.max_in_flight = 0;
  }

  void volume(uint32_t pattern, uint32_t hosts, uint32_t ranks_per_host, uint64_t bytes,
              penstock_volume& within, penstock_volume& between) const {
    sdk::direct_volume(pattern, hosts, ranks_per_host, bytes, within, between);
    if (pattern != PENSTOCK_ALL_REDUCE || bytes > small_bytes_) return;
    // One step: everything goes to everybody.
    const double near = ranks_per_host - 1.0;
    const double far = static_cast<double>(ranks_per_host) * (hosts - 1.0);
    const auto one_step = [&](penstock_volume& volume, double peers) {
      volume.startups = peers;
      volume.bytes = volume.reduced_bytes = peers * static_cast<double>(bytes);
    };
    one_step(within, near);
    one_step(between, far);
  }

  void join(uint64_t timeout_us, penstock_world& world) {
    library_.emplace();
    try {
      hosts_ = library_->hosts(timeout_us);
    } catch (...) {
      library_.reset();
      throw;
    }
    world.hosts = hosts_.data();
    world.rank = library_->rank();
    world.size = library_->size();
  }

  std::unique_ptr<Channel> open(const sdk::OpenCall& call) {
    if (!library_)
      throw sdk::Error(PENSTOCK_FAILED_PRECONDITION,
                       "collective/mpi must join before it opens a group");
    auto channel = std::make_unique<Channel>();
    channel->rank = call.group.rank;
    channel->size = call.group.size;
    channel->small_bytes = (small_bytes_ + 7) / 8 * 8;
    channel->opening_bytes = std::max(channel->small_bytes, kInlineBytes);
    channel->native = native_;
    const bool one_host = std::all_of(call.group.hosts, call.group.hosts + call.group.size,
                                      [&](uint32_t host) { return host == call.group.hosts[0]; });
    channel->segment = segment_bytes_ != 0 ? (segment_bytes_ + 7) / 8 * 8
                       : one_host          ? kLongSegment
                                           : kShortSegment;
    const std::vector<int> members(call.group.world_ranks,
                                   call.group.world_ranks + call.group.size);
    const int tag = static_cast<int>(call.group.id % 32768);
    // What follows waits without a limit: all members must be here.
    library_->meet(members, call.group.rank, tag, call.timeout_us);
    MPI_Group world = MPI_GROUP_NULL;
    MPI_Group group = MPI_GROUP_NULL;
    check(MPI_Comm_group(MPI_COMM_WORLD, &world), "MPI_Comm_group");
    const int included =
        MPI_Group_incl(world, static_cast<int>(members.size()), members.data(), &group);
    MPI_Group_free(&world);
    check(included, "MPI_Group_incl");
    // Only members call it: ranks outside the group are not disturbed.
    const int created = MPI_Comm_create_group(MPI_COMM_WORLD, group, tag, &channel->communicator);
    MPI_Group_free(&group);
    check(created, "MPI_Comm_create_group");
    check(MPI_Comm_set_errhandler(channel->communicator, MPI_ERRORS_RETURN),
          "MPI_Comm_set_errhandler");
    check_tags(*channel);
    return channel;
  }

  Ticket* submit(Channel& channel, const penstock_message& message) {
    sdk::check_message(message, channel.size);
    refuse_if_aborted(channel, message);
    Ticket& ticket = take_ticket(channel);
    ticket.channel = &channel;
    ticket.message = message;
    ticket.submitted = std::chrono::steady_clock::now();
    ticket.done = ticket.small = ticket.native = false;
    ticket.asked = channel.round;
    ticket.failure_code = PENSTOCK_OK;
    ticket.thrown = nullptr;
    ticket.n_expected = ticket.n_opened = 0;
    ticket.own_bytes = ticket.own_copied = 0;
    try {
      ticket.native = channel.native && start_native(ticket);
      if (!ticket.native) start_direct(ticket);
    } catch (...) {
      give_back(ticket);
      throw;
    }
    return &ticket;
  }

  bool progress(Ticket& ticket) {
    if (ticket.done) return true;
    Channel& channel = *ticket.channel;
    const penstock_message& message = ticket.message;
    refuse_if_aborted(channel, message);
    // Who comes a second time asks MPI, for all messages.
    if (ticket.asked == channel.round) collect(channel);
    ticket.asked = channel.round;
    if (ticket.thrown != nullptr) std::rethrow_exception(ticket.thrown);
    ticket.done = ticket.native ? progress_native(ticket) : progress_direct(ticket);
    if (ticket.done || message.deadline_us == 0) return ticket.done;
    if (channel.now - ticket.submitted > std::chrono::microseconds(message.deadline_us))
      throw sdk::message_error(PENSTOCK_DEADLINE_EXCEEDED, message, "not done within ",
                               sdk::seconds_text(message.deadline_us), "; it waits for ",
                               silent_ranks(ticket));
    return false;
  }

  void release(Ticket* ticket) {
    Channel& channel = *ticket->channel;
    give_back(*ticket);
    if (channel.aborted && ticket->lost) settle(channel, *ticket);
  }

  void abort(Channel& channel) { channel.aborted = true; }

  void close(std::unique_ptr<Channel> channel) {
    if (!channel->aborted) collect(*channel);
    // What MPI may still write to must outlive it.
    for (Ticket* lost : channel->lost)
      for (auto& ticket : channel->tickets)
        if (ticket.get() == lost) (void)ticket.release();
    // After an abort, or with requests left, freeing the communicator could wait for others.
    if (!channel->aborted && channel->lost.empty() && library_)
      MPI_Comm_free(&channel->communicator);
  }

  void leave(bool aborted) {
    if (library_) library_->leave(aborted);
    library_.reset();
  }

 private:
  static void refuse_if_aborted(const Channel& channel, const penstock_message& message) {
    if (channel.aborted)
      throw sdk::message_error(PENSTOCK_ABORTED, message, "the channel was aborted");
  }

  static void check_tags(const Channel& channel) {
    void* value = nullptr;
    int found = 0;
    check(MPI_Comm_get_attr(channel.communicator, MPI_TAG_UB, &value, &found), "MPI_Comm_get_attr");
    const int64_t most = found != 0 ? *static_cast<int*>(value) : 32767;
    if (most < static_cast<int64_t>(sdk::kTagLimit * 8))
      throw sdk::unimplemented("this MPI allows tags up to ", most, ", collective/mpi needs ",
                               sdk::kTagLimit * 8,
                               "; use an MPI whose MPI_TAG_UB is at least that (Open MPI over "
                               "shared memory and TCP has 2147483647)");
  }

  bool native_;
  uint64_t small_bytes_;
  uint64_t segment_bytes_;
  std::optional<Library> library_;
  std::vector<uint32_t> hosts_;
};

}  // namespace
}  // namespace penstock::mpi

PENSTOCK_COLLECTIVE(penstock::mpi::Mpi, "collective/mpi", "0.1.0",
                    "messages over MPI; sums in ascending rank order, the same bits on all ranks",
                    "");
