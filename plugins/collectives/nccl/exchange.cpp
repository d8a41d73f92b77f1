// See exchange.hpp.
#include "exchange.hpp"

#include <penstock/error.hpp>
#include <penstock/views.hpp>

#include <kernels/message.hpp>

namespace penstock::nccl {

namespace {

struct Reducible {
  uint32_t dtype;
  DataType type;
};
constexpr Reducible kReducible[] = {
    {PENSTOCK_FLOAT32, kFloat32}, {PENSTOCK_FLOAT16, kFloat16}, {PENSTOCK_BFLOAT16, kBfloat16},
    {PENSTOCK_FLOAT64, kFloat64}, {PENSTOCK_INT8, kInt8},       {PENSTOCK_UINT8, kUint8},
    {PENSTOCK_INT32, kInt32},     {PENSTOCK_UINT32, kUint32},   {PENSTOCK_INT64, kInt64},
    {PENSTOCK_UINT64, kUint64},
};

DataType reducible_type(const penstock_message& message) {
  for (const Reducible& one : kReducible)
    if (one.dtype == message.dtype) return one.type;
  throw sdk::message_error(PENSTOCK_UNIMPLEMENTED, message, "NCCL does not reduce dtype ",
                           message.dtype, "; gather the values instead");
}

Reduction reduction_of(const penstock_message& message) {
  switch (message.reduction) {
    case PENSTOCK_REDUCE_MIN:
      return kMin;
    case PENSTOCK_REDUCE_MAX:
      return kMax;
    case PENSTOCK_REDUCE_PRODUCT:
      return kProduct;
    case PENSTOCK_REDUCE_MEAN:
      return kMean;
    default:
      return kSum;
  }
}

// Groups the calls between its constructor and `end`, so that no call waits for another.
class Together {
 public:
  explicit Together(const Members& members) : members_(members) {
    members.library.check(members.library.calls().group_start(), "ncclGroupStart");
  }
  // Must be called once, after all calls.
  void end() {
    is_open_ = false;
    members_.library.check(members_.library.calls().group_end(), "ncclGroupEnd",
                           members_.communicator);
  }
  ~Together() {
    if (is_open_) (void)members_.library.calls().group_end();
  }

 private:
  const Members& members_;
  bool is_open_ = true;
};

void send(const Members& to, const void* from, uint64_t bytes, uint32_t peer) {
  if (bytes == 0) return;
  to.library.check(to.library.calls().send(from, bytes, kUint8, static_cast<int>(peer),
                                           to.communicator, to.stream),
                   "ncclSend", to.communicator);
}

void receive(const Members& from, void* into, uint64_t bytes, uint32_t peer) {
  if (bytes == 0) return;
  from.library.check(from.library.calls().receive(into, bytes, kUint8, static_cast<int>(peer),
                                                  from.communicator, from.stream),
                     "ncclRecv", from.communicator);
}

bool all_equal(const uint64_t* counts, uint32_t size) {
  for (uint32_t r = 1; r < size; ++r)
    if (counts[r] != counts[0]) return false;
  return true;
}

const char* at(const void* data, uint64_t bytes) {
  return static_cast<const char*>(data) + bytes;
}
char* at(void* data, uint64_t bytes) {
  return static_cast<char*>(data) + bytes;
}

void reduce_scatter(const Members& members, const penstock_message& message) {
  const Calls& calls = members.library.calls();
  const DataType type = reducible_type(message);
  const Reduction reduction = reduction_of(message);
  const uint64_t* const counts = message.receive_counts;
  if (all_equal(counts, members.size)) {
    if (counts[0] != 0)
      members.library.check(calls.reduce_scatter(message.send, message.receive, counts[0], type,
                                                 reduction, members.communicator, members.stream),
                            "ncclReduceScatter", members.communicator);
    return;
  }
  Together together(members);
  uint64_t first = 0;
  for (uint32_t r = 0; r < members.size; ++r) {
    const void* const part = at(message.send, first * sdk::dtype_bytes(message.dtype));
    first += counts[r];
    if (counts[r] == 0) continue;
    members.library.check(
        calls.reduce(part, r == members.rank ? message.receive : nullptr, counts[r], type,
                     reduction, static_cast<int>(r), members.communicator, members.stream),
        "ncclReduce", members.communicator);
  }
  together.end();
}

// Uses sends and receives for all counts, because no rank knows which other ranks have gaps between
// the data that they receive.
void all_gather(const Members& members, const penstock_message& message) {
  const uint64_t width = sdk::dtype_bytes(message.dtype);
  Together together(members);
  for (uint32_t r = 0; r < members.size; ++r) {
    send(members, message.send, message.count * width, r);
    receive(members, at(message.receive, message.receive_offsets[r] * width),
            message.receive_counts[r] * width, r);
  }
  together.end();
}

void all_to_all(const Members& members, const penstock_message& message) {
  const uint64_t width = sdk::dtype_bytes(message.dtype);
  Together together(members);
  uint64_t first = 0;
  for (uint32_t r = 0; r < members.size; ++r) {
    send(members, at(message.send, first * width), message.send_counts[r] * width, r);
    receive(members, at(message.receive, message.receive_offsets[r] * width),
            message.receive_counts[r] * width, r);
    first += message.send_counts[r];
  }
  together.end();
}

}  // namespace

uint64_t reduced_dtypes() {
  uint64_t mask = 0;
  for (const Reducible& one : kReducible) mask |= PENSTOCK_DTYPE_BIT(one.dtype);
  return mask;
}

bool needs_counts(const penstock_message& message) {
  const bool may_differ = message.pattern == PENSTOCK_ALL_GATHER ||
                          message.pattern == PENSTOCK_ALL_TO_ALL ||
                          message.pattern == PENSTOCK_SEND || message.pattern == PENSTOCK_RECEIVE;
  return may_differ && (message.flags & PENSTOCK_MESSAGE_EXACT_COUNTS) == 0;
}

void write_counts(const Members& members, const penstock_message& message, uint64_t* mine) {
  for (uint32_t r = 0; r < members.size; ++r)
    mine[r] = message.pattern == PENSTOCK_ALL_TO_ALL ? message.send_counts[r] : message.count;
}

void queue_counts(const Members& members, const penstock_message& message, uint64_t* mine,
                  uint64_t* theirs) {
  constexpr uint64_t kBytes = sizeof(uint64_t);
  const bool has_peer = message.pattern == PENSTOCK_SEND || message.pattern == PENSTOCK_RECEIVE;
  const uint32_t first = has_peer ? message.peer : 0;
  const uint32_t end = has_peer ? first + 1 : members.size;
  Together together(members);
  for (uint32_t r = first; r < end; ++r) {
    if (message.pattern != PENSTOCK_RECEIVE) send(members, mine + r, kBytes, r);
    if (message.pattern != PENSTOCK_SEND) receive(members, theirs + r, kBytes, r);
  }
  together.end();
}

void queue_message(const Members& members, const penstock_message& message, void* scratch) {
  const Calls& calls = members.library.calls();
  const uint64_t bytes = message.count * sdk::dtype_bytes(message.dtype);
  switch (message.pattern) {
    case PENSTOCK_ALL_REDUCE:
      if (message.count != 0)
        members.library.check(
            calls.all_reduce(message.send, message.receive, message.count, reducible_type(message),
                             reduction_of(message), members.communicator, members.stream),
            "ncclAllReduce", members.communicator);
      return;
    case PENSTOCK_REDUCE_SCATTER:
      return reduce_scatter(members, message);
    case PENSTOCK_ALL_GATHER:
      return all_gather(members, message);
    case PENSTOCK_ALL_TO_ALL:
      return all_to_all(members, message);
    case PENSTOCK_BROADCAST:
      if (bytes != 0)
        members.library.check(
            calls.broadcast(message.send, message.receive, bytes, kUint8,
                            static_cast<int>(message.peer), members.communicator, members.stream),
            "ncclBroadcast", members.communicator);
      return;
    case PENSTOCK_SEND:
      return send(members, message.send, bytes, message.peer);
    case PENSTOCK_RECEIVE:
      return receive(members, message.receive, bytes, message.peer);
    default:  // a barrier
      members.library.check(
          calls.all_reduce(scratch, scratch, 1, kUint8, kMax, members.communicator, members.stream),
          "ncclAllReduce", members.communicator);
  }
}

}  // namespace penstock::nccl
