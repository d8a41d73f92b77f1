// NCCL's functions that Penstock uses, for ranks that are threads of one process on simulated
// devices, with one device per rank (tests/device/README.md).
#pragma once

#include <cuda_runtime_api.h>

#include <climits>
#include <cstddef>

enum ncclResult_t {
  ncclSuccess = 0,
  ncclUnhandledCudaError = 1,
  ncclSystemError = 2,
  ncclInternalError = 3,
  ncclInvalidArgument = 4,
  ncclInvalidUsage = 5,
  ncclRemoteError = 6,
  ncclInProgress = 7
};
enum ncclRedOp_t { ncclSum = 0, ncclProd = 1, ncclMax = 2, ncclMin = 3, ncclAvg = 4 };
enum ncclDataType_t {
  ncclInt8 = 0,
  ncclUint8 = 1,
  ncclInt32 = 2,
  ncclUint32 = 3,
  ncclInt64 = 4,
  ncclUint64 = 5,
  ncclFloat16 = 6,
  ncclFloat32 = 7,
  ncclFloat64 = 8,
  ncclBfloat16 = 9
};

#define NCCL_UNIQUE_ID_BYTES 128
struct ncclUniqueId {
  char internal[NCCL_UNIQUE_ID_BYTES];
};
#define NCCL_CONFIG_UNDEF_INT INT_MIN
// As in NCCL 2.17 and later, which reads only the fields of `version`. A config without the magic
// is refused. Of the other fields only `blocking` has a meaning here: with 0,
// ncclCommInitRankConfig may return before it has finished.
struct ncclConfig_t {
  std::size_t size = sizeof(ncclConfig_t);
  unsigned magic = 0xcafebeef;
  unsigned version = 21800;
  int blocking = NCCL_CONFIG_UNDEF_INT;
  int cgaClusterSize = NCCL_CONFIG_UNDEF_INT;
  int minCTAs = NCCL_CONFIG_UNDEF_INT;
  int maxCTAs = NCCL_CONFIG_UNDEF_INT;
  const char* netName = nullptr;
  int splitShare = NCCL_CONFIG_UNDEF_INT;
};
#define NCCL_CONFIG_INITIALIZER \
  {}
using ncclComm_t = struct SimulatedCommunicator*;

// As in NCCL, so that a program that loads the library finds them by name.
extern "C" {
#pragma GCC visibility push(default)

const char* ncclGetErrorString(ncclResult_t result);
const char* ncclGetLastError(ncclComm_t communicator);
ncclResult_t ncclGetVersion(int* version);
ncclResult_t ncclGetUniqueId(ncclUniqueId* id);
ncclResult_t ncclCommInitRankConfig(ncclComm_t* communicator, int n_ranks, ncclUniqueId id,
                                    int rank, ncclConfig_t* config);
ncclResult_t ncclCommInitRank(ncclComm_t* communicator, int n_ranks, ncclUniqueId id, int rank);
ncclResult_t ncclCommFinalize(ncclComm_t communicator);
ncclResult_t ncclCommDestroy(ncclComm_t communicator);
ncclResult_t ncclCommAbort(ncclComm_t communicator);
ncclResult_t ncclCommGetAsyncError(ncclComm_t communicator, ncclResult_t* error);
ncclResult_t ncclCommCount(ncclComm_t communicator, int* count);
ncclResult_t ncclCommUserRank(ncclComm_t communicator, int* rank);

ncclResult_t ncclGroupStart();
ncclResult_t ncclGroupEnd();
ncclResult_t ncclSend(const void* source, std::size_t count, ncclDataType_t type, int peer,
                      ncclComm_t communicator, cudaStream_t stream);
ncclResult_t ncclRecv(void* target, std::size_t count, ncclDataType_t type, int peer,
                      ncclComm_t communicator, cudaStream_t stream);
ncclResult_t ncclAllReduce(const void* source, void* target, std::size_t count, ncclDataType_t type,
                           ncclRedOp_t operation, ncclComm_t communicator, cudaStream_t stream);
ncclResult_t ncclReduce(const void* source, void* target, std::size_t count, ncclDataType_t type,
                        ncclRedOp_t operation, int root, ncclComm_t communicator,
                        cudaStream_t stream);
ncclResult_t ncclReduceScatter(const void* source, void* target, std::size_t count_received,
                               ncclDataType_t type, ncclRedOp_t operation, ncclComm_t communicator,
                               cudaStream_t stream);
ncclResult_t ncclAllGather(const void* source, void* target, std::size_t count_sent,
                           ncclDataType_t type, ncclComm_t communicator, cudaStream_t stream);
ncclResult_t ncclBroadcast(const void* source, void* target, std::size_t count, ncclDataType_t type,
                           int root, ncclComm_t communicator, cudaStream_t stream);

#pragma GCC visibility pop
}  // extern "C"
