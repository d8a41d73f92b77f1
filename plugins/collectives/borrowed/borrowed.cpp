// borrowed: messages over a transport that a frontend has, such as a torch process group, through
// the interface of borrowed.h.
#include "wire.hpp"

#include "borrowed.h"

#include <penstock/collective.hpp>

#include <collectives/direct.hpp>
#include <collectives/messages.hpp>

#include <optional>

struct penstock_borrowed_relay {
  std::shared_ptr<penstock::borrowed::Relay> relay;
};

namespace penstock::borrowed {
namespace {

constexpr uint64_t kSmallBytes = 4096;  // equal to the default of `mpi` and `ucx`

// The relay that waits for a join. A process has one run and one relay at a time.
struct Slot {
  std::mutex mutex;
  std::shared_ptr<Relay> relay;
};
Slot& slot() {
  static Slot& only = *new Slot;
  return only;
}

class Borrowed : public collectives::OverWire {
 public:
  static inline const sdk::OptionList options{};

  explicit Borrowed(const sdk::Options&) : OverWire(collectives::Sizes(kSmallBytes, 0)) {}

  void describe(penstock_collective_traits& traits) const {
    collectives::describe(traits);
    traits.flags |= PENSTOCK_COLLECTIVE_IS_NOTIFIED;
  }

  // The caller has set rank, size and hosts; join does not change them.
  void join(uint64_t, penstock_world& world) {
    if (world_)
      throw sdk::Error(PENSTOCK_FAILED_PRECONDITION,
                       "collective/borrowed has already joined; leave before joining again");
    std::shared_ptr<Relay> relay;
    {
      const std::lock_guard lock(slot().mutex);
      relay = std::exchange(slot().relay, nullptr);
    }
    if (relay == nullptr)
      throw sdk::Error(
          PENSTOCK_FAILED_PRECONDITION,
          "collective/borrowed carries messages over a transport that a frontend lends, but no "
          "transport was lent; call penstock.torch.lend_process_group() before init(), or name "
          "\"ucx\" or \"mpi\"");
    if (relay->rank() != world.rank || relay->size() != world.size)
      throw sdk::invalid_argument("the transport that was lent to collective/borrowed is rank ",
                                  relay->rank(), " of ", relay->size(),
                                  ", the launcher's variables say rank ", world.rank, " of ",
                                  world.size, "; lend a group of all ranks, in their order");
    world_ = std::make_shared<World>(std::move(relay));
  }

  std::unique_ptr<Channel> open(const sdk::OpenCall& call) {
    if (!world_)
      throw sdk::Error(PENSTOCK_FAILED_PRECONDITION,
                       "collective/borrowed must join before it opens a group");
    auto channel = std::make_unique<Channel>();
    collectives::set_up(*channel, call.group, sizes_);
    auto wire = std::make_unique<Wire>(
        world_, call.group.id,
        std::vector<uint32_t>(call.group.world_ranks, call.group.world_ranks + call.group.size));
    wire->meet(call.timeout_us);
    channel->wire = std::move(wire);
    return channel;
  }

  // Nothing else uses the memory of channels, so it can be freed at once.
  void close(std::unique_ptr<Channel>) {}

  void leave(bool aborted) {
    if (world_ && aborted) world_->relay().drop();
    world_.reset();
  }

 private:
  std::shared_ptr<World> world_;
};

// ---- the door ----

// Makes the errors of an instance that no host has loaded.
penstock_status* (*make_error_of_frontend)(uint32_t, penstock_str) = nullptr;
const penstock_host* host_of_frontend() {
  static const penstock_host host = [] {
    penstock_host made{};
    made.struct_size = sizeof made;
    made.abi_major = PENSTOCK_ABI_MAJOR;
    made.abi_minor = PENSTOCK_ABI_MINOR;
    made.status_new = [](void*, uint32_t code, penstock_str message) {
      return make_error_of_frontend(code, message);
    };
    made.log = [](void*, uint32_t, penstock_str, penstock_str) {};
    return made;
  }();
  return &host;
}

penstock_borrowed_relay* open(uint32_t rank, uint32_t size,
                              penstock_status* (*make_error)(uint32_t, penstock_str)) noexcept {
  try {
    if (sdk::host() == nullptr) {
      make_error_of_frontend = make_error;
      sdk::host_slot() = host_of_frontend();
    }
    auto relay = std::make_unique<penstock_borrowed_relay>();
    relay->relay = std::make_shared<Relay>(rank, size);
    const std::lock_guard lock(slot().mutex);
    slot().relay = relay->relay;
    return relay.release();
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

void close(penstock_borrowed_relay* relay) noexcept {
  const std::lock_guard lock(slot().mutex);
  if (slot().relay == relay->relay) slot().relay = nullptr;
  delete relay;
}

constexpr penstock_borrowed_door door = {
    sizeof(penstock_borrowed_door),
    kFrameBytes,
    kReceives,
    open,
    [](penstock_borrowed_relay* relay, uint32_t to, uint64_t* bytes) -> const void* {
      return relay->relay->next(to, *bytes);
    },
    [](penstock_borrowed_relay* relay, uint32_t from, const void* frame) -> uint32_t {
      return relay->relay->came(from, frame) ? 1 : 0;
    },
    [](penstock_borrowed_relay* relay, uint32_t peer, penstock_str why) {
      relay->relay->lost(peer, std::string(sdk::view(why)));
    },
    [](penstock_borrowed_relay* relay) { relay->relay->end(); },
    close};

const void* extension(void* instance, penstock_str id) noexcept {
  if (sdk::view(id) == PENSTOCK_BORROWED_DOOR) return &door;
  return sdk::CollectiveTable<Borrowed>::table.extension(instance, id);
}

constexpr penstock_collective make_table() {
  penstock_collective made = sdk::CollectiveTable<Borrowed>::table;
  made.extension = extension;
  return made;
}
constexpr penstock_collective table = make_table();

}  // namespace
}  // namespace penstock::borrowed

extern "C" PENSTOCK_EXPORT const penstock_plugin_record penstock_plugin =
    penstock::sdk::make_record(
        PENSTOCK_KIND_COLLECTIVE,
        penstock::sdk::About{
            "collective/borrowed", "0.1.0",
            "messages over a transport that a frontend lends, such as torch's process group; sums "
            "in ascending rank order, equal bits on all ranks"},
        &penstock::sdk::load<penstock::borrowed::Borrowed, penstock::borrowed::table>);
