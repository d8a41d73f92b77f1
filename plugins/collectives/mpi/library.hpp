// The MPI library of this process: started once, finished at the end of the process.
#pragma once

#include <mpi.h>

#include <chrono>
#include <cstdint>
#include <vector>

namespace penstock::mpi {

// Throws PEER_FAILED with MPI's own words unless `code` is MPI_SUCCESS.
void check(int code, const char* what);

// The use of MPI between join and leave. At most one per process at any time.
class Library {
 public:
  // Starts MPI unless somebody else has. [comm] Errors: FAILED_PRECONDITION when another instance
  // has joined, MPI was finalised, or was started by somebody without the thread support we need.
  Library();
  // MPI stays up, so that a later join works. It is finalised when the process ends, provided that
  // we started it and that nothing was aborted: MPI_Finalize waits for all ranks.
  void leave(bool aborted);
  ~Library();  // a leave that never came counts as aborted
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  // Whether it moves memory of CUDA devices, as far as it says: false also where it cannot be
  // asked.
  bool takes_device_memory() const;

  uint32_t rank() const { return rank_; }
  uint32_t size() const { return size_; }

  // The number of each rank's host, from 0 in order of appearance. Collective; DEADLINE_EXCEEDED
  // when not all ranks come.
  std::vector<uint32_t> hosts(uint64_t timeout_us);

  // Returns when all `members`, ranks of the world, have come here with the same `tag`; this rank
  // is the `place`-th of them. After `hosts`. DEADLINE_EXCEEDED when not all come: MPI's own calls
  // that make a communicator would wait for ever.
  void meet(const std::vector<int>& members, uint32_t place, int tag, uint64_t timeout_us) const;

 private:
  using Clock = std::chrono::steady_clock;
  void test_until(MPI_Request* request, Clock::time_point end, uint64_t timeout_us,
                  const char* what) const;

  uint32_t rank_ = 0;
  uint32_t size_ = 1;
  bool joined_ = true;
  // A world of our own for `meet`: what others in this process receive there never matches.
  MPI_Comm rendezvous_ = MPI_COMM_NULL;
};

}  // namespace penstock::mpi
