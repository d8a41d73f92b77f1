// mpi: messages over MPI (tested with Open MPI 4.1).
#include "wire.hpp"

#include <penstock/collective.hpp>

#include <collectives/device_memory.hpp>
#include <collectives/direct.hpp>
#include <collectives/messages.hpp>
#include <kernels/message.hpp>

#include <optional>

namespace penstock::mpi {
namespace {

class Mpi : public collectives::OverWire {
 public:
  static inline const sdk::OptionList options{
      sdk::choice_option("algorithm", "auto", {"auto", "direct", "native"})
          .summary("direct adds in rank order, equal bits everywhere; native is MPI's own; auto "
                   "is direct"),
      collectives::Sizes::small_option(), collectives::Sizes::segment_option(),
      collectives::DeviceMemory::option()};

  explicit Mpi(const sdk::Options& values)
      : OverWire(collectives::Sizes(values)),
        native_(values.choice("algorithm") == "native"),
        device_memory_(values) {}
  Mpi(const Mpi&) = delete;
  Mpi& operator=(const Mpi&) = delete;

  void describe(penstock_collective_traits& traits) const {
    collectives::describe(traits);
    device_memory_.describe(traits);
    traits.flags |= PENSTOCK_COLLECTIVE_PROCESS_GLOBAL;
    if (!native_) return;
    traits.flags &= ~(PENSTOCK_COLLECTIVE_SAME_BITS | PENSTOCK_COLLECTIVE_RANK_ORDER);
    traits.flags |= PENSTOCK_COLLECTIVE_ORDERED;
  }

  void join(uint64_t timeout_us, penstock_world& world) {
    library_.emplace();
    try {
      hosts_ = library_->hosts(timeout_us);
    } catch (...) {
      library_.reset();
      throw;
    }
    device_memory_.learn(library_->takes_device_memory());
    world.hosts = hosts_.data();
    world.rank = library_->rank();
    world.size = library_->size();
  }

  std::unique_ptr<Channel> open(const sdk::OpenCall& call) {
    if (!library_)
      throw sdk::Error(PENSTOCK_FAILED_PRECONDITION,
                       "collective/mpi must join before it opens a group");
    const std::vector<int> members(call.group.world_ranks,
                                   call.group.world_ranks + call.group.size);
    const int tag = static_cast<int>(call.group.id % 32768);
    // The calls after `meet` wait without a limit, so all members must be here first.
    library_->meet(members, call.group.rank, tag, call.timeout_us);
    MPI_Group world = MPI_GROUP_NULL;
    MPI_Group group = MPI_GROUP_NULL;
    check(MPI_Comm_group(MPI_COMM_WORLD, &world), "MPI_Comm_group");
    const int included =
        MPI_Group_incl(world, static_cast<int>(members.size()), members.data(), &group);
    MPI_Group_free(&world);
    check(included, "MPI_Group_incl");
    // Only members call this function, so ranks outside the group are not disturbed.
    MPI_Comm communicator = MPI_COMM_NULL;
    const int created = MPI_Comm_create_group(MPI_COMM_WORLD, group, tag, &communicator);
    MPI_Group_free(&group);
    check(created, "MPI_Comm_create_group");
    check(MPI_Comm_set_errhandler(communicator, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
    check_tags(communicator);
    auto channel = std::make_unique<Channel>();
    collectives::set_up(*channel, call.group, sizes_);
    channel->takes_devices = device_memory_.is_taken();
    channel->wire = std::make_unique<Wire>(communicator, native_);
    return channel;
  }

  void close(std::unique_ptr<Channel> channel) {
    if (!channel->aborted) collectives::collect(*channel);
    // Tickets to which MPI may still write are leaked on purpose.
    for (Ticket* lost : channel->lost)
      for (auto& ticket : channel->tickets)
        if (ticket.get() == lost) (void)ticket.release();
    // After an abort, or with unfinished requests, freeing the communicator could wait for other
    // ranks.
    if (!channel->aborted && channel->lost.empty() && library_)
      static_cast<Wire&>(*channel->wire).close();
  }

  void leave(bool aborted) {
    if (library_) library_->leave(aborted);
    library_.reset();
  }

 private:
  static void check_tags(MPI_Comm communicator) {
    void* value = nullptr;
    int found = 0;
    check(MPI_Comm_get_attr(communicator, MPI_TAG_UB, &value, &found), "MPI_Comm_get_attr");
    const int64_t most = found != 0 ? *static_cast<int*>(value) : 32767;
    if (most < static_cast<int64_t>(sdk::kTagLimit * 8))
      throw sdk::unimplemented("this MPI allows tags up to ", most, ", collective/mpi needs ",
                               sdk::kTagLimit * 8,
                               "; use an MPI whose MPI_TAG_UB is at least that (Open MPI over "
                               "shared memory and TCP has 2147483647)");
  }

  const bool native_;
  collectives::DeviceMemory device_memory_;
  std::optional<Library> library_;
  std::vector<uint32_t> hosts_;
};

}  // namespace
}  // namespace penstock::mpi

PENSTOCK_COLLECTIVE(penstock::mpi::Mpi, "collective/mpi", "0.1.0",
                    "messages over MPI; sums in ascending rank order, equal bits on all ranks", "");
