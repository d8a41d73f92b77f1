// The NCCL library of this machine, which is loaded at join. So one plugin serves machines without
// NCCL and every NCCL from 2.18 on. This file declares the part of NCCL's C interface that the
// plugin calls.
#pragma once

#include <cuda_runtime_api.h>

#include <climits>
#include <cstddef>
#include <string>

namespace penstock::nccl {

// ---- NCCL's interface, as declared in its nccl.h ----

enum Result : int {
  kSuccess = 0,
  kUnhandledCudaError = 1,
  kRemoteError = 6,
  kInProgress = 7,
};
enum DataType : int {
  kInt8 = 0,
  kUint8 = 1,
  kInt32 = 2,
  kUint32 = 3,
  kInt64 = 4,
  kUint64 = 5,
  kFloat16 = 6,
  kFloat32 = 7,
  kFloat64 = 8,
  kBfloat16 = 9,
};
enum Reduction : int { kSum = 0, kProduct = 1, kMax = 2, kMin = 3, kMean = 4 };

struct Handle;  // ncclComm
struct UniqueId {
  char bytes[128];
};
// ncclConfig_t of NCCL 2.18. Newer libraries read only the fields that this `version` had.
struct Config {
  size_t size = sizeof(Config);
  unsigned magic = 0xcafebeef;
  unsigned version = 21800;
  int blocking = 0;  // 0: a call may return before it has ended
  int cluster_size = INT_MIN;
  int min_blocks = INT_MIN;
  int max_blocks = INT_MIN;
  const char* network = nullptr;
  int split_share = INT_MIN;
};

struct Calls {
  const char* (*error_text)(Result);
  const char* (*last_error)(Handle*);
  Result (*version)(int*);
  Result (*unique_id)(UniqueId*);
  Result (*join)(Handle**, int n_ranks, UniqueId, int rank, Config*);
  Result (*finalize)(Handle*);
  Result (*destroy)(Handle*);
  Result (*abort)(Handle*);
  Result (*state)(Handle*, Result*);
  Result (*group_start)();
  Result (*group_end)();
  Result (*send)(const void*, size_t, DataType, int peer, Handle*, cudaStream_t);
  Result (*receive)(void*, size_t, DataType, int peer, Handle*, cudaStream_t);
  Result (*all_reduce)(const void*, void*, size_t, DataType, Reduction, Handle*, cudaStream_t);
  Result (*reduce)(const void*, void*, size_t, DataType, Reduction, int root, Handle*,
                   cudaStream_t);
  Result (*reduce_scatter)(const void*, void*, size_t, DataType, Reduction, Handle*, cudaStream_t);
  Result (*all_gather)(const void*, void*, size_t, DataType, Handle*, cudaStream_t);
  Result (*broadcast)(const void*, void*, size_t, DataType, int root, Handle*, cudaStream_t);
};

// ---- the library as the plugin uses it ----

class Library {
 public:
  // Loads `file`. Empty: libnccl.so.2, which the loader finds or which another library of this
  // process has loaded already (torch brings a copy). The library stays loaded.
  // Errors: FAILED_PRECONDITION if there is no library, with the loader's text, or if it is older
  // than 2.18.
  explicit Library(const std::string& file);

  const Calls& calls() const { return calls_; }
  // Throws DEVICE_ERROR or PEER_FAILED with NCCL's own text, unless the call has succeeded or is in
  // progress.
  void check(Result result, const char* what, Handle* communicator = nullptr) const;

 private:
  Calls calls_{};
};

}  // namespace penstock::nccl
