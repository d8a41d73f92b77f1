// Functions that transports share: the names of patterns for error messages, and the checks of a
// message that need no peer.
#pragma once

#include <kernels/reduce.hpp>

#include <penstock/collective.h>
#include <penstock/error.hpp>
#include <penstock/views.hpp>

namespace penstock::sdk {

inline const char* pattern_name(uint32_t pattern) {
  switch (pattern) {
    case PENSTOCK_ALL_REDUCE:
      return "all-reduce";
    case PENSTOCK_REDUCE_SCATTER:
      return "reduce-scatter";
    case PENSTOCK_ALL_GATHER:
      return "all-gather";
    case PENSTOCK_ALL_TO_ALL:
      return "all-to-all";
    case PENSTOCK_BROADCAST:
      return "broadcast";
    case PENSTOCK_SEND:
      return "send";
    case PENSTOCK_RECEIVE:
      return "receive";
    case PENSTOCK_BARRIER:
      return "barrier";
    case PENSTOCK_SPARSE_ALL_REDUCE:
      return "sparse all-reduce";
    default:
      return "unknown pattern";
  }
}

// All patterns that a transport carries.
inline uint64_t transport_patterns() {
  uint64_t mask = 0;
  for (uint32_t pattern = PENSTOCK_ALL_REDUCE; pattern <= PENSTOCK_BARRIER; ++pattern)
    mask |= PENSTOCK_PATTERN_BIT(pattern);
  return mask;
}

// The id that the core gives to a message of a step: step, bucket and place in the bucket. The id
// of a named operation is its sequence number.
constexpr uint64_t kStepMessage = uint64_t(1) << 63;
constexpr uint64_t step_message_id(uint64_t step, uint64_t bucket, uint64_t order) {
  return kStepMessage | (step << 24 & ~kStepMessage) | (bucket & 0xFFFF) << 8 | (order & 0xFF);
}

// For people: "step 10, bucket 0, message 2" or "operation 7".
inline std::string message_name(uint64_t id) {
  if ((id & kStepMessage) == 0) return text("operation ", id);
  return text("step ", (id & ~kStepMessage) >> 24, ", bucket ", id >> 8 & 0xFFFF, ", message ",
              id & 0xFF);
}

// "60 s", "0.02 s".
inline std::string seconds_text(uint64_t microseconds) {
  return text(double(microseconds) * 1e-6, " s");
}

// An error that names pattern, tag and message.
template <typename... Parts>
Error message_error(uint32_t code, const penstock_message& message, const Parts&... parts) {
  return Error(code, text(pattern_name(message.pattern), " with tag ", message.tag, " (",
                          message_name(message.id), "): ", parts...));
}

inline bool is_reduction(uint32_t pattern) {
  return pattern == PENSTOCK_ALL_REDUCE || pattern == PENSTOCK_REDUCE_SCATTER;
}

inline uint64_t sum_of(const uint64_t* counts, uint32_t size) {
  uint64_t total = 0;
  for (uint32_t r = 0; r < size; ++r) total += counts[r];
  return total;
}

constexpr uint64_t kTagLimit = uint64_t(1) << 20;

// Checks everything about a message that a rank can check alone. Throws INVALID_ARGUMENT, or
// UNIMPLEMENTED for a pattern, reduction or dtype that transports do not know.
inline void check_message(const penstock_message& message, uint32_t size) {
  const auto wrong = [&](const auto&... parts) {
    return message_error(PENSTOCK_INVALID_ARGUMENT, message, parts...);
  };
  if (!PENSTOCK_HAS_FIELD(&message, penstock_message, flags))
    throw invalid_argument("a message has struct_size ", message.struct_size,
                           ", expected at least ", sizeof(penstock_message));
  const uint32_t pattern = message.pattern;
  if (pattern < PENSTOCK_ALL_REDUCE || pattern > PENSTOCK_BARRIER)
    throw message_error(PENSTOCK_UNIMPLEMENTED, message, "pattern ", pattern,
                        " is not carried by a transport");
  if (message.tag >= kTagLimit) throw wrong("the tag must be below ", kTagLimit);
  if (pattern == PENSTOCK_BARRIER) return;
  if (dtype_bytes(message.dtype) == 0)
    throw message_error(PENSTOCK_UNIMPLEMENTED, message, "unknown dtype ", message.dtype);
  const bool is_mean = message.reduction == PENSTOCK_REDUCE_MEAN &&
                       (kernels::mean_dtypes() & PENSTOCK_DTYPE_BIT(message.dtype)) != 0;
  if (is_reduction(pattern) && !is_mean &&
      (message.reduction < PENSTOCK_REDUCE_SUM || message.reduction > PENSTOCK_REDUCE_PRODUCT))
    throw message_error(PENSTOCK_UNIMPLEMENTED, message, "unknown reduction ", message.reduction);
  const bool has_peer =
      pattern == PENSTOCK_BROADCAST || pattern == PENSTOCK_SEND || pattern == PENSTOCK_RECEIVE;
  if (has_peer && message.peer >= size)
    throw wrong("peer is ", message.peer, ", the group has ", size, " ranks");
  if (pattern == PENSTOCK_REDUCE_SCATTER && message.receive_counts == nullptr)
    throw wrong("receive_counts is null");
  if (pattern == PENSTOCK_REDUCE_SCATTER && sum_of(message.receive_counts, size) != message.count)
    throw wrong("receive_counts add up to ", sum_of(message.receive_counts, size),
                " elements, count is ", message.count);
  if ((pattern == PENSTOCK_ALL_GATHER || pattern == PENSTOCK_ALL_TO_ALL) &&
      (message.receive_counts == nullptr || message.receive_offsets == nullptr))
    throw wrong("receive_counts and receive_offsets must not be null");
  if (pattern == PENSTOCK_ALL_TO_ALL && message.send_counts == nullptr)
    throw wrong("send_counts is null");
  if (pattern == PENSTOCK_ALL_TO_ALL && sum_of(message.send_counts, size) != message.count)
    throw wrong("send_counts add up to ", sum_of(message.send_counts, size), " elements, count is ",
                message.count);
}

// The volume of a message when every rank sends directly to every other rank, in the form of
// penstock_collective.volume. `bytes` is the size of `send` on one rank. Each level counts the
// bytes of the peers that it reaches.
inline void direct_volume(uint32_t pattern, uint32_t hosts, uint32_t ranks_per_host, uint64_t bytes,
                          penstock_volume& within, penstock_volume& between) {
  const double size = static_cast<double>(hosts) * ranks_per_host;
  const auto cost = [&](penstock_volume& volume, double peers) {
    double startups = peers;
    double sent = 0;     // bytes for each peer
    double reduced = 0;  // bytes from each peer
    const double part = static_cast<double>(bytes) / size;
    if (pattern == PENSTOCK_ALL_REDUCE) {
      startups = 2 * peers;
      sent = 2 * part;
      reduced = part;
    } else if (pattern == PENSTOCK_REDUCE_SCATTER) {
      sent = reduced = part;
    } else if (pattern == PENSTOCK_ALL_TO_ALL) {
      sent = part;
    } else if (pattern != PENSTOCK_BARRIER) {
      sent = static_cast<double>(bytes);
    }
    volume.startups = startups;
    volume.bytes = peers * sent;
    volume.reduced_bytes = peers * reduced;
  };
  double near = ranks_per_host - 1.0;
  double far = size - ranks_per_host;
  if (pattern == PENSTOCK_SEND || pattern == PENSTOCK_RECEIVE) {
    far = hosts > 1 ? 1 : 0;
    near = hosts > 1 ? 0 : 1;
  }
  cost(within, near);
  cost(between, far);
}

}  // namespace penstock::sdk
