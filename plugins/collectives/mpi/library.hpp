// The MPI library of this process. MPI is started once and finalised at the end of the process.
#pragma once

#include <mpi.h>

#include <chrono>
#include <cstdint>
#include <vector>

namespace penstock::mpi {

// Throws PEER_FAILED with MPI's own text unless `code` is MPI_SUCCESS.
void check(int code, const char* what);

// The use of MPI between join and leave. A process has at most one such object at any time.
class Library {
 public:
  // Starts MPI unless the program has started it. [comm] Errors: FAILED_PRECONDITION if another
  // instance has joined, if MPI was finalised, or if the program started MPI without
  // MPI_THREAD_SERIALIZED.
  Library();
  // Ends the use of MPI. MPI stays started, so that a later join works. The end of the process
  // finalises MPI if this plugin started it and nothing was aborted, because MPI_Finalize waits for
  // all ranks.
  void leave(bool aborted);
  ~Library();  // counts as aborted if `leave` was not called
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  // Whether MPI says that it moves memory of CUDA devices; false if it cannot be asked.
  bool takes_device_memory() const;

  uint32_t rank() const { return rank_; }
  uint32_t size() const { return size_; }

  // The number of each rank's host; hosts are numbered from 0 in order of appearance. Collective;
  // DEADLINE_EXCEEDED if a rank does not come.
  std::vector<uint32_t> hosts(uint64_t timeout_us);

  // Waits until all `members`, ranks of the world, have called it with an equal `tag`; this rank is
  // the `place`-th member. May be called only after `hosts`. DEADLINE_EXCEEDED if a member does not
  // come; MPI's own calls that make a communicator would wait for ever.
  void meet(const std::vector<int>& members, uint32_t place, int tag, uint64_t timeout_us) const;

 private:
  using Clock = std::chrono::steady_clock;
  void test_until(MPI_Request* request, Clock::time_point end, uint64_t timeout_us,
                  const char* what) const;

  uint32_t rank_ = 0;
  uint32_t size_ = 1;
  bool joined_ = true;
  // A duplicate of the world communicator for `meet`, so that receives of other code in this
  // process never match its messages.
  MPI_Comm rendezvous_ = MPI_COMM_NULL;
};

}  // namespace penstock::mpi
