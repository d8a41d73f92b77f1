// nccl: messages between devices over NVIDIA's library (2.18 or newer), which is loaded at run
// time.
#include "channel.hpp"
#include "exchange.hpp"

#include <penstock/collective.hpp>
#include <penstock/options.hpp>

#include <collectives/store.hpp>
#include <kernels/message.hpp>

#include <cstring>
#include <map>
#include <optional>

namespace penstock::nccl {
namespace {

UniqueId id_of(std::string_view letters) {
  UniqueId id{};
  if (letters.size() != 2 * sizeof id.bytes)
    throw sdk::internal("the store has ", letters.size(), " letters for an id of NCCL, expected ",
                        2 * sizeof id.bytes);
  std::memcpy(id.bytes, collectives::bytes_of(letters).data(), sizeof id.bytes);
  return id;
}

class Nccl {
 public:
  using Channel = nccl::Channel;
  using Ticket = nccl::Ticket;
  // NCCL divides the values of each rank by the number of ranks before it adds them.
  static constexpr uint64_t kMeanDtypes = kernels::mean_dtypes();
  static inline const sdk::OptionList options{
      sdk::integer_option("device", -1)
          .at_least(-1)
          .at_most(1023)
          .rank_local()
          .summary("the device of this rank; -1: by its place among the ranks of its host"),
      sdk::string_option("library", "")
          .rank_local()
          .summary("file of NCCL; empty: libnccl.so.2 as the loader finds it")};

  explicit Nccl(const sdk::Options& values)
      : wanted_device_(static_cast<int>(values.integer("device"))),
        file_(values.string("library")) {}
  Nccl(const Nccl&) = delete;
  Nccl& operator=(const Nccl&) = delete;

  // For every algorithm, NCCL forms the sum of each element once and then passes it on, so all
  // ranks have equal bits.
  void describe(penstock_collective_traits& traits) const {
    traits.patterns = sdk::transport_patterns();
    traits.dtypes = reduced_dtypes();
    traits.device_types = uint64_t(1) << PENSTOCK_DEVICE_CUDA;
    traits.abort_bound_us = 1'000'000;
    traits.flags = PENSTOCK_COLLECTIVE_TRANSPORT | PENSTOCK_COLLECTIVE_ORDERED |
                   PENSTOCK_COLLECTIVE_SAME_BITS | PENSTOCK_COLLECTIVE_IS_NOTIFIED;
    traits.max_in_flight = 0;
  }

  void volume(uint32_t pattern, uint32_t hosts, uint32_t ranks_per_host, uint64_t bytes,
              penstock_volume& within, penstock_volume& between) const {
    sdk::direct_volume(pattern, hosts, ranks_per_host, bytes, within, between);
  }

  // The caller has set rank, size and hosts; join does not change them.
  void join(uint64_t, penstock_world& world) {
    const bool has_store =
        PENSTOCK_HAS_FIELD(&world, penstock_world, store) && world.store != nullptr;
    if (world.size > 1 && !has_store)
      throw sdk::Error(PENSTOCK_FAILED_PRECONDITION,
                       "collective/nccl finds the other ranks through the run's store, and join "
                       "was given none; the host must be of ABI 0.4 or newer");
    library_.emplace(file_);
    device_ = device_of(world);
    store_ = world.store;
  }

  std::unique_ptr<Channel> open(const sdk::OpenCall& call) {
    if (!library_)
      throw sdk::Error(PENSTOCK_FAILED_PRECONDITION,
                       "collective/nccl must join before it opens a group");
    const CurrentDevice current(device_);
    auto channel = std::make_unique<Channel>(*library_, call.group, device_);
    channel->open(meet(call), call.timeout_us);
    return channel;
  }

  Ticket* submit(Channel& channel, const penstock_message& message) {
    sdk::check_message(message, channel.size);
    check_place(channel, message);
    const CurrentDevice current(device_);
    return channel.submit(message);
  }
  bool progress(Ticket& ticket) {
    const CurrentDevice current(device_);
    return ticket.channel->progress(ticket);
  }
  void release(Ticket* ticket) {
    const CurrentDevice current(device_);
    ticket->channel->release(*ticket);
  }
  void abort(Channel& channel) { channel.aborted = true; }
  void close(std::unique_ptr<Channel> channel) {
    const CurrentDevice current(device_);
    channel->close();
    channel.reset();
  }
  void leave(bool) {
    library_.reset();
    openings_.clear();
  }

 private:
  int device_of(const penstock_world& world) const {
    int count = 0;
    check(cudaGetDeviceCount(&count), "cudaGetDeviceCount");
    uint32_t place = 0;
    for (uint32_t r = 0; r < world.rank; ++r)
      place += world.hosts != nullptr && world.hosts[r] == world.hosts[world.rank] ? 1 : 0;
    // A launcher may show each rank only its own device.
    const int usual = count == 1 ? 0 : static_cast<int>(place);
    const int device = wanted_device_ >= 0 ? wanted_device_ : usual;
    if (device < count) return device;
    throw sdk::Error(
        PENSTOCK_NOT_FOUND,
        sdk::text("rank ", world.rank, " is to use cuda:", device, ", and this host has ", count,
                  count == 1 ? " device" : " devices",
                  "; start as many ranks per host as it has devices, or choose the device of each "
                  "rank with the option device"));
  }

  // The id that the first rank of the group has made for this opening of the group.
  UniqueId meet(const sdk::OpenCall& call) {
    UniqueId id{};
    const uint64_t opening = openings_[call.group.id]++;
    const std::string key = sdk::text("nccl/", call.group.id, "/", opening);
    if (call.group.rank == 0) library_->check(library_->calls().unique_id(&id), "ncclGetUniqueId");
    if (call.group.size == 1) return id;
    if (call.group.rank == 0) {
      collectives::put(*store_, key, collectives::letters_of({id.bytes, sizeof id.bytes}));
      return id;
    }
    return id_of(collectives::get(*store_, key, call.timeout_us));
  }

  static void check_place(const Channel& channel, const penstock_message& message) {
    const penstock_exec* const exec = message.exec;
    if (exec == nullptr || exec->device_type != PENSTOCK_DEVICE_CUDA)
      throw sdk::message_error(PENSTOCK_INVALID_ARGUMENT, message,
                               "it lies in memory of the host, NCCL moves memory of devices");
    if (exec->device_id != channel.device)
      throw sdk::message_error(
          PENSTOCK_INVALID_ARGUMENT, message, "it lies on cuda:", exec->device_id,
          ", this rank's channel is on cuda:", channel.device,
          "; set the option device of collective/nccl, or the tensors' device");
  }

  const int wanted_device_;
  const std::string file_;
  int device_ = 0;
  std::optional<Library> library_;
  const penstock_key_value_store* store_ = nullptr;
  std::map<uint64_t, uint64_t> openings_;  // number of openings of each group
};

}  // namespace
}  // namespace penstock::nccl

PENSTOCK_COLLECTIVE(penstock::nccl::Nccl, "collective/nccl", "0.1.0",
                    "messages between CUDA devices over NCCL, which is loaded at run time", "");
