// MPI's own non-blocking collectives, for comparison and for networks that MPI knows better than
// this plugin. They match by order of submission, and their sums depend on MPI's choice of
// algorithm. Open MPI accepts no memory of devices in these operations.
#include "wire.hpp"

#include <collectives/ticket.hpp>

#include <kernels/message.hpp>

#include <climits>

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

// Carries nothing, and returns 0, for memory of devices, 16-bit floats, counts that do not fit an
// int, send, receive, and patterns whose counts may differ between ranks.
uint32_t Wire::carry(Ticket& ticket) {
  const penstock_message& message = ticket.message;
  // A count that fits here fits on all ranks, because it is equal on all ranks.
  const bool fits = message.count <= static_cast<uint64_t>(INT_MAX);
  const MPI_Datatype datatype = datatype_of(message.dtype);
  const bool barrier = message.pattern == PENSTOCK_BARRIER;
  if (!native_ || ticket.on_device || (!barrier && (!fits || datatype == MPI_DATATYPE_NULL)))
    return 0;
  const bool in_place = message.send == message.receive;
  const void* send = in_place ? MPI_IN_PLACE : message.send;
  const MPI_Op operation = operation_of(message.dtype, message.reduction);
  const int count = static_cast<int>(message.count);
  MPI_Request request = MPI_REQUEST_NULL;
  switch (message.pattern) {
    case PENSTOCK_ALL_REDUCE:
      check(MPI_Iallreduce(send, message.receive, count, datatype, operation, communicator_,
                           &request),
            "MPI_Iallreduce");
      break;
    case PENSTOCK_REDUCE_SCATTER: {
      std::vector<int>& counts = native_counts_[&ticket];
      counts.assign(message.receive_counts, message.receive_counts + ticket.channel->size);
      check(MPI_Ireduce_scatter(message.send, message.receive, counts.data(), datatype, operation,
                                communicator_, &request),
            "MPI_Ireduce_scatter");
      break;
    }
    case PENSTOCK_BROADCAST: {
      const bool root = message.peer == ticket.channel->rank;
      if (root && message.receive != nullptr && !in_place) {
        ticket.own_from = static_cast<const char*>(message.send);
        ticket.own_to = static_cast<char*>(message.receive);
        ticket.own_bytes = message.count * sdk::dtype_bytes(message.dtype);
      }
      void* data = root ? const_cast<void*>(message.send) : message.receive;
      check(MPI_Ibcast(data, count, datatype, static_cast<int>(message.peer), communicator_,
                       &request),
            "MPI_Ibcast");
      break;
    }
    case PENSTOCK_BARRIER:
      check(MPI_Ibarrier(communicator_, &request), "MPI_Ibarrier");
      break;
    default:
      return 0;
  }
  add(ticket, {Kind::kWhole, 0, 0, 0}, request);
  return 1;
}

}  // namespace penstock::mpi
