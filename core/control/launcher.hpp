// What a launcher has told this process about its place among others.
#pragma once

#include "core/base/environment.hpp"
#include "core/base/status.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace penstock {

// FAILED_PRECONDITION where the ranks that met are not those that a launcher has started: a
// launcher of another kind leaves each process alone in a world of its own, and N processes would
// train N models in silence. Compared are the variables of mpirun (OMPI_COMM_WORLD_SIZE), other
// MPIs (PMI_SIZE), srun (SLURM_STEP_NUM_TASKS, else SLURM_NTASKS inside a step), torchrun
// (WORLD_SIZE) and horovodrun (HOROVOD_SIZE), and each with its rank. Launchers may be nested, and
// variables left over: it is enough that one of them agrees. One that started a single process
// says nothing, and below a torchrun (TORCHELASTIC_RUN_ID) it alone speaks.
Status check_launcher(uint32_t rank, uint32_t size, std::string_view transport,
                      const GetEnvironment& environment = process_environment());

// What has started this process, going by its variables. by_step: srun, which an MPI may know too;
// alone_in_step: a single process there, which an MPI that does not know srun would end.
enum class Launched { alone, alone_in_step, by_mpi, by_step, otherwise };
Launched launched_by(const GetEnvironment& environment = process_environment());
// The same for who knows that it is `rank` of `size`: MPI counts where its launcher says so too.
Launched launched_as(uint32_t rank, uint32_t size,
                     const GetEnvironment& environment = process_environment());

// Where this process is to meet the others when no transport brings them together.
struct Rendezvous {
  uint32_t rank = 0;
  uint32_t size = 1;
  std::string host;   // name or address of rank 0's host
  uint16_t port = 0;  // of the store there
  std::string token;  // equal in the ranks of this run, other than that of most other runs
  std::string said;   // the variables that say so, for messages: "RANK=1, WORLD_SIZE=4, ..."
  // Another run at the same host and port has the same token.
  bool may_be_shared = false;
};

// From the variables of the innermost of the launchers above that says rank and size; nothing where
// there are none, or where they start one process only. torchrun, where it has marked its own, is
// the innermost; srun lies around all others, and other two that differ contradict each other. The
// host is MASTER_ADDR, or the first one of a Slurm step; the port is the one behind MASTER_PORT,
// which belongs to the launcher or to the program, or made from the number of the Slurm job and
// step; PENSTOCK_PORT before both. INVALID_ARGUMENT for a value that makes no sense;
// FAILED_PRECONDITION where launchers contradict each other, or some variable is missing.
Result<std::optional<Rendezvous>> rendezvous_of(
    const GetEnvironment& environment = process_environment());

// The store for who knows that it is `rank` of `size`, where PENSTOCK_PORT and MASTER_ADDR name it.
Result<std::optional<Rendezvous>> named_store(
    uint32_t rank, uint32_t size, const GetEnvironment& environment = process_environment());

// What the launchers' variables say where that is not `rank` of `size`; empty where it is, or where
// they say nothing.
std::string other_word(uint32_t rank, uint32_t size,
                       const GetEnvironment& environment = process_environment());

}  // namespace penstock
