// See native.hpp.
#include "native.hpp"

#include <kernels/message.hpp>

#include <climits>
#include <cstring>

namespace penstock::mpi {

namespace {

MPI_Datatype datatype_of(uint32_t dtype) {
  switch (dtype) {
    case PENSTOCK_FLOAT32:
      return MPI_FLOAT;
    case PENSTOCK_FLOAT64:
      return MPI_DOUBLE;
    case PENSTOCK_INT8:
      return MPI_INT8_T;
    case PENSTOCK_UINT8:
      return MPI_UINT8_T;
    case PENSTOCK_INT16:
      return MPI_INT16_T;
    case PENSTOCK_UINT16:
      return MPI_UINT16_T;
    case PENSTOCK_INT32:
      return MPI_INT32_T;
    case PENSTOCK_UINT32:
      return MPI_UINT32_T;
    case PENSTOCK_INT64:
      return MPI_INT64_T;
    case PENSTOCK_UINT64:
      return MPI_UINT64_T;
    case PENSTOCK_BOOL:
      return MPI_CXX_BOOL;
    default:
      return MPI_DATATYPE_NULL;
  }
}

MPI_Op operation_of(uint32_t dtype, uint32_t reduction) {
  const bool logical = dtype == PENSTOCK_BOOL;
  switch (reduction) {
    case PENSTOCK_REDUCE_SUM:
      return logical ? MPI_LOR : MPI_SUM;
    case PENSTOCK_REDUCE_MAX:
      return logical ? MPI_LOR : MPI_MAX;
    case PENSTOCK_REDUCE_MIN:
      return logical ? MPI_LAND : MPI_MIN;
    default:
      return logical ? MPI_LAND : MPI_PROD;
  }
}

}  // namespace

bool start_native(Ticket& ticket) {
  const penstock_message& message = ticket.message;
  const Channel& channel = *ticket.channel;
  // A count that fits here fits on all ranks: it is the same on all.
  const bool fits = message.count <= static_cast<uint64_t>(INT_MAX);
  const MPI_Datatype datatype = datatype_of(message.dtype);
  if (message.pattern != PENSTOCK_BARRIER && (!fits || datatype == MPI_DATATYPE_NULL)) return false;
  const bool in_place = message.send == message.receive;
  const void* send = in_place ? MPI_IN_PLACE : message.send;
  const MPI_Op operation = operation_of(message.dtype, message.reduction);
  const int count = static_cast<int>(message.count);
  const Event event{Kind::kNative, 0, 0, 0};
  switch (message.pattern) {
    case PENSTOCK_ALL_REDUCE:
      start(ticket, event, "MPI_Iallreduce", [&](MPI_Request* request) {
        return MPI_Iallreduce(send, message.receive, count, datatype, operation,
                              channel.communicator, request);
      });
      return true;
    case PENSTOCK_REDUCE_SCATTER:
      ticket.native_counts.assign(message.receive_counts, message.receive_counts + channel.size);
      start(ticket, event, "MPI_Ireduce_scatter", [&](MPI_Request* request) {
        return MPI_Ireduce_scatter(message.send, message.receive, ticket.native_counts.data(),
                                   datatype, operation, channel.communicator, request);
      });
      return true;
    case PENSTOCK_BROADCAST: {
      const bool root = message.peer == channel.rank;
      if (root && message.receive != nullptr && !in_place) {
        ticket.own_from = static_cast<const char*>(message.send);
        ticket.own_to = static_cast<char*>(message.receive);
        ticket.own_bytes = message.count * sdk::dtype_bytes(message.dtype);
      }
      start(ticket, event, "MPI_Ibcast", [&](MPI_Request* request) {
        return MPI_Ibcast(root ? const_cast<void*>(message.send) : message.receive, count, datatype,
                          static_cast<int>(message.peer), channel.communicator, request);
      });
      return true;
    }
    case PENSTOCK_BARRIER:
      start(ticket, event, "MPI_Ibarrier",
            [&](MPI_Request* request) { return MPI_Ibarrier(channel.communicator, request); });
      return true;
    default:
      return false;
  }
}

bool progress_native(Ticket& ticket) {
  if (ticket.n_requests != 0) return false;
  if (ticket.own_bytes != 0) std::memcpy(ticket.own_to, ticket.own_from, ticket.own_bytes);
  return true;
}

}  // namespace penstock::mpi
