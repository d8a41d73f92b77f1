// What a launcher has told this process about its place among others.
#pragma once

#include "core/base/status.hpp"
#include "core/config/load.hpp"

#include <cstdint>
#include <string_view>

namespace penstock {

// FAILED_PRECONDITION where the ranks that met are not those that a launcher has started: a
// launcher of another kind leaves each process alone in a world of its own, and N processes would
// train N models in silence. Compared are the variables of mpirun (OMPI_COMM_WORLD_SIZE), other
// MPIs (PMI_SIZE), srun (SLURM_STEP_NUM_TASKS, SLURM_NTASKS; only inside a step), torchrun
// (WORLD_SIZE) and horovodrun (HOROVOD_SIZE), and each with its rank. Launchers may be nested, and
// variables left over: it is enough that one of them agrees. One that started a single process
// says nothing.
Status check_launcher(uint32_t rank, uint32_t size, std::string_view transport,
                      const GetEnvironment& environment = process_environment());

}  // namespace penstock
