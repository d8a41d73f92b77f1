// See library.hpp.
#include "library.hpp"

#include <penstock/error.hpp>

#include <dlfcn.h>

namespace penstock::nccl {

namespace {

constexpr const char* kUsualFile = "libnccl.so.2";
constexpr int kOldest = 21800;

std::string version_text(int version) {
  return sdk::text(version / 10000, ".", version / 100 % 100, ".", version % 100);
}

template <typename Function>
void find(void* library, const char* name, const std::string& file, Function*& function) {
  function = reinterpret_cast<Function*>(dlsym(library, name));
  if (function == nullptr)
    throw sdk::Error(PENSTOCK_FAILED_PRECONDITION,
                     sdk::text(file, " has no ", name, "; collective/nccl needs NCCL ",
                               version_text(kOldest), " or newer"));
}

}  // namespace

Library::Library(const std::string& file) {
  const std::string name = file.empty() ? kUsualFile : file;
  void* const library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr)
    throw sdk::Error(PENSTOCK_FAILED_PRECONDITION,
                     sdk::text("collective/nccl finds no NCCL: ", dlerror(),
                               "; install NCCL, name its file with the option library, or choose "
                               "another collective"));
  find(library, "ncclGetVersion", name, calls_.version);
  int version = 0;
  find(library, "ncclGetErrorString", name, calls_.error_text);
  check(calls_.version(&version), "ncclGetVersion");
  if (version < kOldest)
    throw sdk::Error(PENSTOCK_FAILED_PRECONDITION,
                     sdk::text(name, " is NCCL ", version_text(version), ", collective/nccl needs ",
                               version_text(kOldest), " or newer"));
  find(library, "ncclGetLastError", name, calls_.last_error);
  find(library, "ncclGetUniqueId", name, calls_.unique_id);
  find(library, "ncclCommInitRankConfig", name, calls_.join);
  find(library, "ncclCommFinalize", name, calls_.finalize);
  find(library, "ncclCommDestroy", name, calls_.destroy);
  find(library, "ncclCommAbort", name, calls_.abort);
  find(library, "ncclCommGetAsyncError", name, calls_.state);
  find(library, "ncclGroupStart", name, calls_.group_start);
  find(library, "ncclGroupEnd", name, calls_.group_end);
  find(library, "ncclSend", name, calls_.send);
  find(library, "ncclRecv", name, calls_.receive);
  find(library, "ncclAllReduce", name, calls_.all_reduce);
  find(library, "ncclReduce", name, calls_.reduce);
  find(library, "ncclReduceScatter", name, calls_.reduce_scatter);
  find(library, "ncclAllGather", name, calls_.all_gather);
  find(library, "ncclBroadcast", name, calls_.broadcast);
}

void Library::check(Result result, const char* what, Handle* communicator) const {
  if (result == kSuccess || result == kInProgress) return;
  std::string words = sdk::text(what, ": ", calls_.error_text(result));
  const char* const more = calls_.last_error == nullptr ? nullptr : calls_.last_error(communicator);
  if (more != nullptr && *more != '\0') words += sdk::text(" (", more, ")");
  throw sdk::Error(result == kRemoteError ? PENSTOCK_PEER_FAILED : PENSTOCK_DEVICE_ERROR, words);
}

}  // namespace penstock::nccl
