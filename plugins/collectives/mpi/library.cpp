// See library.hpp.
#include "library.hpp"

#include <penstock/error.hpp>

#include <kernels/message.hpp>

#include <dlfcn.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <memory>
#include <string>
#include <thread>

namespace penstock::mpi {

namespace {

// MPI is global to the process, and so is the state that this plugin keeps about it.
std::atomic<bool> in_use{false};
std::atomic<bool> may_finalise{false};
pid_t started_by = 0;

void finalise_at_exit() {
  // A forked child that ends takes no part in MPI: MPI_Finalize would wait for threads of its
  // parent.
  if (getpid() != started_by) return;
  int finalised = 0;
  MPI_Finalized(&finalised);
  if (may_finalise && finalised == 0) MPI_Finalize();
}

sdk::Error unusable(const char* why) {
  return sdk::Error(PENSTOCK_FAILED_PRECONDITION, sdk::text("collective/mpi cannot join: ", why));
}

// A number that a launcher has set in a variable of this process; 0: none.
uint64_t number_in(const char* variable) {
  const char* const text = std::getenv(variable);
  return text == nullptr ? 0 : std::strtoull(text, nullptr, 10);
}

// Whether mpirun says that all ranks are on this host, or no launcher has set any variable.
bool all_are_here() {
  if (const uint64_t ranks = number_in("OMPI_COMM_WORLD_SIZE"); ranks != 0)
    return ranks == number_in("OMPI_COMM_WORLD_LOCAL_SIZE");
  constexpr const char* kOfLaunchers[] = {"PMIX_RANK", "PMI_RANK",     "PMI_SIZE",
                                          "PMI_FD",    "SLURM_PROCID", "ALPS_APP_PE"};
  return std::none_of(std::begin(kOfLaunchers), std::end(kOfLaunchers),
                      [](const char* one) { return std::getenv(one) != nullptr; });
}

// If all ranks are on this host, transports of Open MPI through memory carry everything, and its
// other transports would listen at all addresses of the host, so they are switched off. They stay
// on if the user chooses the transports, or if there is too little shared memory (as often in a
// container).
void stay_on_this_host() {
  constexpr uint64_t kSharedBytes = uint64_t(64) << 20;  // shared memory for each rank
  if (!all_are_here() || std::getenv("OMPI_MCA_btl") != nullptr) return;
  struct statvfs shared {};
  const uint64_t ranks = std::max<uint64_t>(number_in("OMPI_COMM_WORLD_SIZE"), 1);
  if (statvfs("/dev/shm", &shared) != 0 ||
      uint64_t{shared.f_bavail} * shared.f_frsize < ranks * kSharedBytes)
    return;
  // MPI_Init also sets environment variables.
  setenv("OMPI_MCA_btl", "^tcp,uct,openib,ofi,usnic", 0);
}

void start() {
  int finalised = 0;
  MPI_Finalized(&finalised);
  if (finalised != 0) throw unusable("MPI was finalised before, and it cannot be started twice");
  int initialised = 0;
  MPI_Initialized(&initialised);
  int support = MPI_THREAD_SINGLE;
  if (initialised != 0) {
    check(MPI_Query_thread(&support), "MPI_Query_thread");
  } else {
    stay_on_this_host();
    check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &support), "MPI_Init_thread");
    started_by = getpid();
    std::atexit(finalise_at_exit);
  }
  if (support < MPI_THREAD_SERIALIZED)
    throw unusable(
        "MPI was started without MPI_THREAD_SERIALIZED, which calls from the communication thread "
        "need; start it with MPI_Init_thread or let penstock start it");
}

}  // namespace

void check(int code, const char* what) {
  if (code == MPI_SUCCESS) return;
  char reason[MPI_MAX_ERROR_STRING] = "";
  int size = 0;
  MPI_Error_string(code, reason, &size);
  throw sdk::Error(PENSTOCK_PEER_FAILED, sdk::text(what, " failed: ", reason));
}

Library::Library() {
  if (in_use.exchange(true)) throw unusable("another instance in this process has joined");
  try {
    start();
    int rank = 0;
    int size = 1;
    check(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
    check(MPI_Comm_rank(MPI_COMM_WORLD, &rank), "MPI_Comm_rank");
    check(MPI_Comm_size(MPI_COMM_WORLD, &size), "MPI_Comm_size");
    rank_ = static_cast<uint32_t>(rank);
    size_ = static_cast<uint32_t>(size);
    may_finalise = false;
  } catch (...) {
    in_use = false;
    throw;
  }
}

void Library::leave(bool aborted) {
  if (!joined_) return;
  joined_ = false;
  // After an abort this call could wait for other ranks.
  int finalised = 0;
  MPI_Finalized(&finalised);
  if (!aborted && finalised == 0 && rendezvous_ != MPI_COMM_NULL) MPI_Comm_free(&rendezvous_);
  may_finalise = !aborted;
  in_use = false;
}

Library::~Library() {
  leave(true);
}

// Calls an extension of Open MPI and MPICH, which is found by name: the library at run time may
// differ from the library of the build, and other libraries lack the extension.
bool Library::takes_device_memory() const {
  const auto ask = reinterpret_cast<int (*)()>(dlsym(RTLD_DEFAULT, "MPIX_Query_cuda_support"));
  return ask != nullptr && ask() == 1;
}

// Tests a request of all ranks of the world until it is done or the time is over.
void Library::test_until(MPI_Request* request, Clock::time_point end, uint64_t timeout_us,
                         const char* what) const {
  for (int done = 0; done == 0; std::this_thread::yield()) {
    check(MPI_Test(request, &done, MPI_STATUS_IGNORE), what);
    if (done == 0 && Clock::now() > end)
      throw sdk::Error(PENSTOCK_DEADLINE_EXCEEDED,
                       sdk::text("rank ", rank_, " waited ", sdk::seconds_text(timeout_us),
                                 " for the other ", size_ - 1, " ranks to join over MPI"));
  }
}

std::vector<uint32_t> Library::hosts(uint64_t timeout_us) {
  char name[MPI_MAX_PROCESSOR_NAME] = "";
  int length = 0;
  check(MPI_Get_processor_name(name, &length), "MPI_Get_processor_name");
  // If a rank does not come, MPI continues to use these two objects, so they are leaked on purpose.
  auto given_up = std::make_unique<std::vector<char>>(uint64_t(size_) * MPI_MAX_PROCESSOR_NAME);
  auto meeting = std::make_unique<MPI_Comm>(MPI_COMM_NULL);
  std::memcpy(given_up->data() + uint64_t(rank_) * MPI_MAX_PROCESSOR_NAME, name, sizeof name);
  const auto end = Clock::now() + std::chrono::microseconds(timeout_us);
  try {
    MPI_Request request = MPI_REQUEST_NULL;
    check(MPI_Iallgather(MPI_IN_PLACE, 0, MPI_CHAR, given_up->data(), MPI_MAX_PROCESSOR_NAME,
                         MPI_CHAR, MPI_COMM_WORLD, &request),
          "MPI_Iallgather of host names");
    test_until(&request, end, timeout_us, "MPI_Iallgather of host names");
    check(MPI_Comm_idup(MPI_COMM_WORLD, meeting.get(), &request), "MPI_Comm_idup");
    test_until(&request, end, timeout_us, "MPI_Comm_idup");
  } catch (...) {
    (void)given_up.release();
    (void)meeting.release();
    throw;
  }
  rendezvous_ = *meeting;
  const std::vector<char>& names = *given_up;
  std::vector<uint32_t> hosts(size_);
  uint32_t n_hosts = 0;
  for (uint32_t r = 0; r < size_; ++r) {
    const char* mine = &names[uint64_t(r) * MPI_MAX_PROCESSOR_NAME];
    uint32_t same = 0;
    while (same < r && std::strcmp(mine, &names[uint64_t(same) * MPI_MAX_PROCESSOR_NAME]) != 0)
      ++same;
    hosts[r] = same < r ? hosts[same] : n_hosts++;
  }
  return hosts;
}

// A dissemination barrier: a rank that hears from the ranks 1, 2, 4, ... places before it knows
// that all ranks are here.
void Library::meet(const std::vector<int>& members, uint32_t place, int tag,
                   uint64_t timeout_us) const {
  const auto end = Clock::now() + std::chrono::microseconds(timeout_us);
  const size_t n = members.size();
  for (size_t distance = 1; distance < n; distance *= 2) {
    const int to = members[(place + distance) % n];
    const int from = members[(place + n - distance) % n];
    MPI_Request requests[2] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL};
    check(MPI_Irecv(nullptr, 0, MPI_BYTE, from, tag, rendezvous_, &requests[0]), "MPI_Irecv");
    check(MPI_Isend(nullptr, 0, MPI_BYTE, to, tag, rendezvous_, &requests[1]), "MPI_Isend");
    for (int done = 0; done == 0; std::this_thread::yield()) {
      check(MPI_Testall(2, requests, &done, MPI_STATUSES_IGNORE), "MPI_Testall");
      if (done != 0 || Clock::now() <= end) continue;
      MPI_Cancel(&requests[0]);
      for (MPI_Request& request : requests) MPI_Request_free(&request);
      throw sdk::Error(PENSTOCK_DEADLINE_EXCEEDED,
                       sdk::text("rank ", rank_, " waited ", sdk::seconds_text(timeout_us),
                                 " for all ", n, " members of a group to open it over MPI; rank ",
                                 from, " has not come, or waits for another"));
    }
  }
}

}  // namespace penstock::mpi
