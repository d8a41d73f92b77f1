#include "core/comm/channel.hpp"

#include "core/plugin/instances.hpp"
#include "core/tensor/dtype.hpp"

#include <kernels/message.hpp>

#include <penstock/mean.h>

#include <cmath>
#include <utility>

namespace penstock {
namespace {

// A composite sees the table of its base with another `submit`, which counts. The instance pointer
// is the Channel of the base, which stores the count.
penstock_status* counted_submit(void* instance, penstock_channel* handle,
                                const penstock_message* message, penstock_ticket** ticket) {
  auto* base = static_cast<Channel*>(instance);
  penstock_status* status = base->table->submit(base->instance, handle, message, ticket);
  if (status == nullptr) count_sent(*base, *message);
  return status;
}
penstock_status* forwarded_progress(void* instance, penstock_ticket* ticket, uint32_t* state) {
  return to_c(progress(*static_cast<Channel*>(instance), ticket, *state));
}
void forwarded_release(void* instance, penstock_ticket* ticket) {
  auto* base = static_cast<Channel*>(instance);
  base->table->release(base->instance, ticket);
}
penstock_status* forwarded_describe(void* instance, penstock_collective_traits* traits) {
  auto* base = static_cast<Channel*>(instance);
  return base->table->describe(base->instance, traits);
}
void forwarded_abort(void* instance, penstock_channel* handle) {
  auto* base = static_cast<Channel*>(instance);
  base->table->abort(base->instance, handle);
}

constexpr penstock_collective make_counting_table() {
  penstock_collective table{};
  table.struct_size = sizeof table;
  table.describe = forwarded_describe;
  table.submit = counted_submit;
  table.progress = forwarded_progress;
  table.release = forwarded_release;
  table.abort = forwarded_abort;
  return table;
}
constexpr penstock_collective kCountingTable = make_counting_table();

}  // namespace

Status progress(Channel& channel, penstock_ticket* ticket, uint32_t& state) {
  PENSTOCK_TRY(from_c(channel.table->progress(channel.instance, ticket, &state)));
  if (state == PENSTOCK_PENDING || state == PENSTOCK_DONE) return {};
  const uint32_t unknown = std::exchange(state, PENSTOCK_PENDING);
  abort_handle(channel);  // it may still use the message's buffers, which are freed next
  return internal(
      "channel '{}': progress of the collective says that a message is in state {}, expected {} "
      "(pending) or {} (done); tell the plugin's author",
      channel.name, unknown, static_cast<uint32_t>(PENSTOCK_PENDING),
      static_cast<uint32_t>(PENSTOCK_DONE));
}

std::unique_ptr<Channel> make_channel(const Communication::OpenRequest& request) {
  auto channel = std::make_unique<Channel>();
  channel->table = request.table;
  channel->instance = request.instance;
  channel->members = request.group;
  channel->group = channel->members.view(request.group_id);
  channel->base = request.base;
  channel->name = request.name;
  return channel;
}

Status open_handle(Channel& channel, const Communication::OpenRequest& request) {
  channel.traits.struct_size = sizeof channel.traits;
  PENSTOCK_TRY(from_c(channel.table->describe(channel.instance, &channel.traits)));
  const penstock_base_channel* base = nullptr;
  if (channel.base != nullptr) {
    penstock_base_channel& view = channel.base_view;
    view.struct_size = sizeof view;
    view.collective = &kCountingTable;
    view.instance = channel.base;
    view.channel = channel.base->handle;
    view.tag_first = 0;
    view.n_tags = kTagsPerMessage;
    base = &view;
  }
  return from_c(channel.table->open(channel.instance, &channel.group, base, request.store,
                                    request.timeout_us, &channel.handle));
}

void abort_handle(Channel& channel) {
  if (channel.aborted) return;
  channel.aborted = true;
  if (channel.handle != nullptr) channel.table->abort(channel.instance, channel.handle);
}

void close_handle(Channel& channel) {
  if (channel.handle != nullptr) channel.table->close(channel.instance, channel.handle);
  channel.handle = nullptr;
}

uint64_t bytes_handed_over(const penstock_message& message, uint32_t group_size) {
  const uint64_t element = dtype_bytes(message.dtype);
  switch (message.pattern) {
    case PENSTOCK_RECEIVE:
    case PENSTOCK_BARRIER:
    case PENSTOCK_SPARSE_ALL_REDUCE:
      return 0;
    case PENSTOCK_ALL_TO_ALL: {
      uint64_t count = 0;
      for (uint32_t r = 0; r < group_size; ++r) count += message.send_counts[r];
      return count * element;
    }
    default:
      return message.count * element;
  }
}

uint64_t bytes_moved(const Channel& channel, const penstock_message& message) {
  const uint32_t me = channel.group.rank;
  if (message.pattern == PENSTOCK_BROADCAST && message.peer != me) return 0;
  const uint64_t bytes = bytes_handed_over(message, channel.group.size);
  if (message.pattern == PENSTOCK_ALL_TO_ALL)
    return bytes - message.send_counts[me] * dtype_bytes(message.dtype);
  return static_cast<uint64_t>(std::llround(moved_bytes(
      channel.table, channel.instance, channel.members.spread(), message.pattern, bytes)));
}

void count_sent(Channel& channel, const penstock_message& message) {
  if (channel.base != nullptr) return;
  channel.bytes_sent.fetch_add(bytes_handed_over(message, channel.group.size),
                               std::memory_order_relaxed);
  channel.bytes_moved.fetch_add(bytes_moved(channel, message), std::memory_order_relaxed);
  channel.messages_sent.fetch_add(1, std::memory_order_relaxed);
}

Status limit_error(const Channel& channel, const penstock_message& message, uint64_t limit_us) {
  return deadline_exceeded(
      "{} on channel '{}' ({}) has waited {:g} s for other ranks, which are alive; raise "
      "runtime.busy_limit_s if they may be busy for that long",
      pattern_name(message.pattern), channel.name, sdk::message_name(message.id),
      double(limit_us) * 1e-6);
}

uint64_t mean_dtypes(const void* extension) {
  const auto* const mean = static_cast<const penstock_mean*>(extension);
  return mean != nullptr && PENSTOCK_HAS_FIELD(mean, penstock_mean, dtypes) ? mean->dtypes : 0;
}

uint64_t mean_dtypes(const penstock_collective& table, void* instance) {
  if (!PENSTOCK_HAS_MEMBER(&table, penstock_collective, extension)) return 0;
  return mean_dtypes(table.extension(instance, str(PENSTOCK_MEAN_EXTENSION)));
}

std::string_view pattern_name(uint32_t pattern) {
  switch (pattern) {
    case PENSTOCK_ALL_REDUCE:
      return "all_reduce";
    case PENSTOCK_REDUCE_SCATTER:
      return "reduce_scatter";
    case PENSTOCK_ALL_GATHER:
      return "all_gather";
    case PENSTOCK_ALL_TO_ALL:
      return "all_to_all";
    case PENSTOCK_BROADCAST:
      return "broadcast";
    case PENSTOCK_SEND:
      return "send";
    case PENSTOCK_RECEIVE:
      return "receive";
    case PENSTOCK_BARRIER:
      return "barrier";
    case PENSTOCK_SPARSE_ALL_REDUCE:
      return "sparse_all_reduce";
    default:
      return "unknown pattern";
  }
}

}  // namespace penstock
