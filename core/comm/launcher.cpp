#include "core/comm/launcher.hpp"

#include <charconv>
#include <cstring>
#include <optional>

namespace penstock {

namespace {

struct Launcher {
  const char* size;
  const char* rank;
  const char* only_with;  // null, or a variable without which the two say nothing of this process
};

// Outside a step, in a batch script, Slurm's variables tell of the job and not of this process.
constexpr Launcher kLaunchers[] = {
    {"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", nullptr},
    {"PMI_SIZE", "PMI_RANK", nullptr},
    {"SLURM_STEP_NUM_TASKS", "SLURM_PROCID", nullptr},
    {"SLURM_NTASKS", "SLURM_PROCID", "SLURM_STEP_ID"},
    {"WORLD_SIZE", "RANK", nullptr},
    {"HOROVOD_SIZE", "HOROVOD_RANK", nullptr},
};

std::optional<uint64_t> number(const GetEnvironment& environment, const char* name) {
  const char* text = environment(name);
  if (text == nullptr) return std::nullopt;
  const char* end = text + std::strlen(text);
  uint64_t value = 0;
  const auto [rest, error] = std::from_chars(text, end, value);
  if (error != std::errc() || rest != end) return std::nullopt;
  return value;
}

constexpr std::string_view kRemedy =
    "start the program with `penstock run -np N -- ...`, or with mpirun of the MPI that Penstock "
    "was built with";

}  // namespace

Status check_launcher(uint32_t rank, uint32_t size, std::string_view transport,
                      const GetEnvironment& environment) {
  Status wrong;
  for (const Launcher& launcher : kLaunchers) {
    if (launcher.only_with != nullptr && !number(environment, launcher.only_with)) continue;
    const auto its_size = number(environment, launcher.size);
    if (!its_size || *its_size < 2) continue;
    const auto its_rank = number(environment, launcher.rank);
    if (*its_size == size && its_rank.value_or(rank) == rank) return {};
    if (!wrong.ok()) continue;
    if (*its_size == size)
      wrong = failed_precondition(
          "this process is rank {} over '{}', but its launcher says {}={}; {}, and unset {} where "
          "it is left over from another launcher",
          rank, transport, launcher.rank, *its_rank, kRemedy, launcher.rank);
    else
      wrong = failed_precondition(
          "{} over '{}', but the launcher of this process says {}={}: {}; {}, or unset {} where "
          "this is meant",
          size == 1 ? "this process is alone" : fmt::format("{} ranks have met", size), transport,
          launcher.size, *its_size,
          size == 1
              ? fmt::format("{} processes would train {} separate models", *its_size, *its_size)
              : "ranks are missing, or belong to another run",
          kRemedy, launcher.size);
  }
  return wrong;
}

}  // namespace penstock
