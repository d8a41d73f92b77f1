// The rank, world size and place that the variables of a launcher give this process.
#pragma once

#include "core/base/environment.hpp"
#include "core/base/status.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace penstock {

// FAILED_PRECONDITION if the ranks that met are not the ranks that a launcher has started. A
// launcher of another kind leaves each process alone in its own world, and N processes would
// silently train N models. The check compares rank and size in the variables of mpirun
// (OMPI_COMM_WORLD_SIZE), other MPIs (PMI_SIZE), srun (SLURM_STEP_NUM_TASKS, else SLURM_NTASKS
// inside a step), torchrun (WORLD_SIZE) and horovodrun (HOROVOD_SIZE). Launchers may be nested and
// may leave variables of an outer run, so one matching launcher is enough. A launcher of a single
// process is ignored. Below torchrun (TORCHELASTIC_RUN_ID) only torchrun's variables count.
Status check_launcher(uint32_t rank, uint32_t size, std::string_view transport,
                      const GetEnvironment& environment = process_environment());

// The kind of launcher that has started this process, according to its variables. by_step: srun;
// some MPI libraries support srun as a launcher too. single_in_step: a single process in a step of
// srun; an MPI library that does not support srun would end it.
enum class Launched { single, single_in_step, by_mpi, by_step, otherwise };
Launched launched_by(const GetEnvironment& environment = process_environment());
// Like launched_as() for a caller that knows that it is `rank` of `size`: MPI counts only if its
// launcher gives this rank and size.
Launched launched_as(uint32_t rank, uint32_t size,
                     const GetEnvironment& environment = process_environment());

// The place where this process meets the other ranks if no transport connects them.
struct Rendezvous {
  uint32_t rank = 0;
  uint32_t size = 1;
  std::string host;   // name or address of rank 0's host
  uint16_t port = 0;  // of the store there
  // Equal on all ranks of this run, different from the tokens of most other runs.
  std::string token;
  // The variables that give this place, for messages: "RANK=1, WORLD_SIZE=4, ...".
  std::string said;
  // Another run at an equal host and port has an equal token.
  bool may_be_shared = false;
};

// Read from the variables of the innermost launcher above that gives rank and size. Empty if there
// is none or if it starts one process only. The innermost launcher is torchrun if its own mark is
// set; srun is outside all others; two other launchers that differ contradict each other. The host
// is MASTER_ADDR, or the first host of a Slurm step. The port is MASTER_PORT + 1, because
// MASTER_PORT belongs to the launcher or the program, or it is made from the numbers of the Slurm
// job and step. PENSTOCK_PORT overrides both. INVALID_ARGUMENT for an invalid value;
// FAILED_PRECONDITION if launchers contradict each other or a variable is missing.
Result<std::optional<Rendezvous>> rendezvous_of(
    const GetEnvironment& environment = process_environment());

// The store for a caller that knows that it is `rank` of `size`, if PENSTOCK_PORT and MASTER_ADDR
// name it.
Result<std::optional<Rendezvous>> named_store(
    uint32_t rank, uint32_t size, const GetEnvironment& environment = process_environment());

// The rank and size in the launchers' variables if they differ from `rank` and `size`; empty if
// they agree or are not set.
std::string other_word(uint32_t rank, uint32_t size,
                       const GetEnvironment& environment = process_environment());

}  // namespace penstock
