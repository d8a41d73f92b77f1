// The begin of every call of NCCL.
#pragma once

#include "../calls/call.hpp"
#include "clique.hpp"

namespace penstock::simulated {

// Null, after a report, if the communicator is destroyed.
Communicator* find_communicator(Machine& machine, ncclComm_t handle);

template <typename Body>
ncclResult_t nccl_call(Body&& body) {
  Machine& all = machine();
  Lock lock(all.mutex);
  if (refusal(all, Call::kNccl, Needs::kNothing) != cudaSuccess) return ncclUnhandledCudaError;
  if (refusal_of_device(all) != cudaSuccess) return ncclUnhandledCudaError;
  return body(all, lock);
}

}  // namespace penstock::simulated
