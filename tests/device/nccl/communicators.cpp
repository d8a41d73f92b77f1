// The creation and end of communicators.
#include <fmt/format.h>

#include <cstring>
#include <utility>

#include "call.hpp"

namespace penstock::simulated {

Communicator* find_communicator(Machine& machine, ncclComm_t handle) {
  const auto& members = communicators(machine).members;
  const auto found = members.find(reinterpret_cast<uint64_t>(handle));
  if (found != members.end()) return found->second.get();
  machine.journal.report(Misuse::kDeadHandle,
                         fmt::format("communicator {:#x} does not exist, or not any more",
                                     reinterpret_cast<uint64_t>(handle)));
  return nullptr;
}

namespace {

bool is_blocking(const ncclConfig_t* config) {
  return config == nullptr || config->blocking != 0;
}

bool has_work(const Communicator& communicator) {
  for (const Batch* batch : communicator.clique->batches)
    if (batch->rank() == communicator.rank) return true;
  return false;
}

void remove(Machine& machine, const Communicator& communicator) {
  communicator.clique->members[communicator.rank] = nullptr;
  communicators(machine).members.erase(communicator.id);
}

ncclResult_t bring_late(Machine& machine, Communicator& communicator) {
  return queue_group(machine, std::exchange(communicator.late, {}));
}

ncclResult_t join(Machine& machine, Lock& lock, ncclComm_t* handle, int n_ranks,
                  const ncclUniqueId& id, int rank, bool blocking) {
  if (n_ranks <= 0 || rank < 0 || rank >= n_ranks) return ncclInvalidArgument;
  auto& clique = communicators(machine).cliques[std::string(id.internal, sizeof id.internal)];
  if (clique == nullptr) {
    clique = std::make_shared<Clique>();
    clique->n_ranks = n_ranks;
    clique->members.resize(n_ranks);
  }
  if (clique->n_ranks != n_ranks || clique->members[rank] != nullptr) return ncclInvalidArgument;
  const int device = current_device();
  for (const Communicator* member : clique->members)
    if (member != nullptr && member->device == device) return ncclInvalidUsage;
  auto made = std::make_unique<Communicator>(Communicator{.id = machine.new_id(),
                                                          .clique = clique,
                                                          .rank = rank,
                                                          .device = device,
                                                          .blocking = blocking});
  clique->members[rank] = made.get();
  ++clique->n_joined;
  *handle = reinterpret_cast<ncclComm_t>(made->id);
  const std::shared_ptr<Clique> joined = clique;
  communicators(machine).members.emplace(made->id, std::move(made));
  machine.wake();
  if (!blocking) return joined->is_complete() ? ncclSuccess : ncclInProgress;
  machine.wait_for_change(lock, [&] { return joined->is_complete() || joined->is_aborted(); });
  return joined->is_complete() ? ncclSuccess : ncclRemoteError;
}

}  // namespace
}  // namespace penstock::simulated

using namespace penstock::simulated;

const char* ncclGetErrorString(ncclResult_t result) {
  constexpr const char* kTexts[] = {"no error",
                                    "a call of CUDA failed",
                                    "a call of the system failed",
                                    "internal error",
                                    "invalid argument",
                                    "invalid usage",
                                    "a remote process is gone or has failed",
                                    "the operation is under way"};
  const auto index = static_cast<std::size_t>(result);
  return index < std::size(kTexts) ? kTexts[index] : "unknown result";
}
// The real NCCL returns the last warning of the process, often an empty text.
const char* ncclGetLastError(ncclComm_t) {
  return "";
}
ncclResult_t ncclGetVersion(int* version) {
  *version = 22005;
  return ncclSuccess;
}
ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  return nccl_call([&](Machine& machine, Lock&) {
    *id = {};
    const uint64_t number = machine.new_id();
    std::memcpy(id->internal, &number, sizeof number);
    return ncclSuccess;
  });
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* communicator, int n_ranks, ncclUniqueId id,
                                    int rank, ncclConfig_t* config) {
  if (config != nullptr && config->magic != ncclConfig_t{}.magic) return ncclInvalidArgument;
  return nccl_call([&](Machine& machine, Lock& lock) {
    return join(machine, lock, communicator, n_ranks, id, rank, is_blocking(config));
  });
}
ncclResult_t ncclCommInitRank(ncclComm_t* communicator, int n_ranks, ncclUniqueId id, int rank) {
  return ncclCommInitRankConfig(communicator, n_ranks, id, rank, nullptr);
}

// Returns after all earlier work is done.
ncclResult_t ncclCommFinalize(ncclComm_t handle) {
  return nccl_call([&](Machine& machine, Lock& lock) {
    Communicator* found = find_communicator(machine, handle);
    if (found == nullptr) return ncclInvalidArgument;
    if (const ncclResult_t error = bring_late(machine, *found); error != ncclSuccess) return error;
    if (!has_work(*found)) return ncclSuccess;
    machine.journal.count_wait(&Waits::for_device);
    return machine.finish_device(lock, found->device) == cudaSuccess ? ncclSuccess
                                                                     : ncclUnhandledCudaError;
  });
}
ncclResult_t ncclCommDestroy(ncclComm_t handle) {
  return nccl_call([&](Machine& machine, Lock& lock) {
    const Communicator* found = find_communicator(machine, handle);
    if (found == nullptr) return ncclInvalidArgument;
    if (has_work(*found)) {
      machine.journal.report(Misuse::kCommunicatorDestroyedBusy,
                             fmt::format("rank {} of a communicator of {} was destroyed with work "
                                         "queued; finalize or abort it",
                                         found->rank, found->clique->n_ranks));
      (void)machine.finish_device(lock, found->device);
    }
    remove(machine, *found);
    return ncclSuccess;
  });
}

// On every rank the work ends without moving data. The other ranks get an error.
ncclResult_t ncclCommAbort(ncclComm_t handle) {
  return nccl_call([&](Machine& machine, Lock&) {
    Communicator* found = find_communicator(machine, handle);
    if (found == nullptr) return ncclInvalidArgument;
    found->clique->abort();
    for (Communicator*& member : found->clique->members) {
      if (member == found)
        member = nullptr;
      else if (member != nullptr)
        member->error = ncclRemoteError;
    }
    communicators(machine).members.erase(found->id);
    machine.wake();
    return ncclSuccess;
  });
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t handle, ncclResult_t* error) {
  return nccl_call([&](Machine& machine, Lock&) {
    Communicator* found = find_communicator(machine, handle);
    if (found == nullptr) return ncclInvalidArgument;
    if (!found->late.empty() && --found->asked_until_there == 0)
      if (const ncclResult_t failed = bring_late(machine, *found); failed != ncclSuccess)
        found->error = failed;
    *error = found->error;
    if (found->error == ncclSuccess && (!found->clique->is_complete() || !found->late.empty()))
      *error = ncclInProgress;
    return ncclSuccess;
  });
}
ncclResult_t ncclCommCount(ncclComm_t handle, int* count) {
  return nccl_call([&](Machine& machine, Lock&) {
    const Communicator* found = find_communicator(machine, handle);
    if (found == nullptr) return ncclInvalidArgument;
    *count = found->clique->n_ranks;
    return ncclSuccess;
  });
}
ncclResult_t ncclCommUserRank(ncclComm_t handle, int* rank) {
  return nccl_call([&](Machine& machine, Lock&) {
    const Communicator* found = find_communicator(machine, handle);
    if (found == nullptr) return ncclInvalidArgument;
    *rank = found->rank;
    return ncclSuccess;
  });
}
