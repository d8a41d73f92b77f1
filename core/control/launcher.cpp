#include "core/control/launcher.hpp"

#include "core/base/hash.hpp"

#include <charconv>
#include <optional>
#include <vector>

namespace penstock {

namespace {

struct Launcher {
  const char* size;
  const char* rank;
  Launched as;  // if size is above 1
  // Whether the variables belong to this process. Null: always.
  bool (*speaks)(const GetEnvironment&) = nullptr;
};

// Empty if the variable is not set.
std::string text(const GetEnvironment& environment, const char* name) {
  const char* value = environment(name);
  return value == nullptr ? "" : value;
}

bool is_in_step(const GetEnvironment& environment) {
  return !text(environment, "SLURM_STEP_ID").empty();
}

// In a batch script, and in salloc's interactive step, SLURM_NTASKS counts the tasks of the job.
bool counts_tasks_of_step(const GetEnvironment& environment) {
  return is_in_step(environment) && text(environment, "SLURM_STEP_NUM_TASKS").empty();
}

// srun --mpi=pmi2 also sets variables of other MPIs, but the MPI here may not support PMI2.
bool is_of_an_mpi(const GetEnvironment& environment) {
  return !is_in_step(environment) ||
         text(environment, "PMI_JOBID") !=
             text(environment, "SLURM_JOB_ID") + "." + text(environment, "SLURM_STEP_ID");
}

// Inner launchers come first.
constexpr Launcher kLaunchers[] = {
    {"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", Launched::by_mpi},
    {"PMI_SIZE", "PMI_RANK", Launched::by_mpi, is_of_an_mpi},
    {"WORLD_SIZE", "RANK", Launched::otherwise},
    {"HOROVOD_SIZE", "HOROVOD_RANK", Launched::otherwise},
    {"SLURM_STEP_NUM_TASKS", "SLURM_PROCID", Launched::by_step},
    {"SLURM_NTASKS", "SLURM_PROCID", Launched::by_step, counts_tasks_of_step},
};
// torchrun sets this variable and starts its own processes below another launcher.
constexpr const char* kMarkOfTorchrun = "TORCHELASTIC_RUN_ID";

constexpr uint64_t kMostRanks = uint64_t{1} << 24;
constexpr uint64_t kMostPort = 65535;
constexpr size_t kMostToken = 200;  // bytes; a hello has no room for more
// Ports for Slurm steps: not the ports of usual services, and not the ports that systems choose.
constexpr uint64_t kFirstSlurmPort = 20000;
constexpr uint64_t kSlurmPorts = 10000;

// Empty if the variable is not set.
Result<std::optional<uint64_t>> number(const GetEnvironment& environment, const char* name,
                                       uint64_t least, uint64_t most) {
  const std::string given = text(environment, name);
  if (given.empty()) return std::optional<uint64_t>();
  uint64_t value = 0;
  const char* const end = given.data() + given.size();
  const auto [rest, error] = std::from_chars(given.data(), end, value);
  if (error != std::errc() || rest != end || value < least || value > most)
    return invalid_argument("environment variable {} is \"{}\", expected an integer from {} to {}",
                            name, given, least, most);
  return std::optional<uint64_t>(value);
}

// For callers that only compare: empty also if the value is not a number.
std::optional<uint64_t> number_if_any(const GetEnvironment& environment, const char* name) {
  const auto value = number(environment, name, 0, UINT64_MAX);
  return value.ok() ? value.value() : std::nullopt;
}

// The launchers whose variables belong to this process. Inner launchers come first.
std::vector<Launcher> launchers_of(const GetEnvironment& environment) {
  if (environment(kMarkOfTorchrun) != nullptr && number_if_any(environment, "WORLD_SIZE"))
    return {{"WORLD_SIZE", "RANK", Launched::otherwise}};
  std::vector<Launcher> speaking;
  for (const Launcher& launcher : kLaunchers)
    if (launcher.speaks == nullptr || launcher.speaks(environment)) speaking.push_back(launcher);
  return speaking;
}

Launched alone_as(const GetEnvironment& environment) {
  return is_in_step(environment) ? Launched::single_in_step : Launched::single;
}

constexpr std::string_view kRemedy =
    "start the program with `penstock run -np N -- ...`, or with mpirun of the MPI that Penstock "
    "was built with";

}  // namespace

Status check_launcher(uint32_t rank, uint32_t size, std::string_view transport,
                      const GetEnvironment& environment) {
  Status wrong;
  for (const Launcher& launcher : launchers_of(environment)) {
    const auto its_size = number_if_any(environment, launcher.size);
    if (!its_size || *its_size < 2) continue;
    const auto its_rank = number_if_any(environment, launcher.rank);
    if (*its_size == size && its_rank.value_or(rank) == rank) return {};
    if (!wrong.ok()) continue;
    if (*its_size == size)
      wrong = failed_precondition(
          "this process is rank {} over '{}', but its launcher says {}={}; {}, and unset {} if it "
          "is left over from another launcher",
          rank, transport, launcher.rank, *its_rank, kRemedy, launcher.rank);
    else
      wrong = failed_precondition(
          "{} over '{}', but the launcher of this process says {}={}: {}; {}, or unset {} if this "
          "is intended",
          size == 1 ? "this process is alone" : fmt::format("{} ranks have met", size), transport,
          launcher.size, *its_size,
          size == 1
              ? fmt::format("{} processes would train {} separate models", *its_size, *its_size)
              : "ranks are missing, or belong to another run",
          kRemedy, launcher.size);
  }
  return wrong;
}

Launched launched_by(const GetEnvironment& environment) {
  const Launched alone = alone_as(environment);
  Launched by = alone;
  for (const Launcher& launcher : launchers_of(environment)) {
    const auto size = number_if_any(environment, launcher.size);
    if (!size) continue;
    if (launcher.as == Launched::by_mpi) return Launched::by_mpi;
    if (*size > 1 && by == alone) by = launcher.as;
  }
  return by;
}

Launched launched_as(uint32_t rank, uint32_t size, const GetEnvironment& environment) {
  if (size == 1) return alone_as(environment);
  for (const Launcher& launcher : launchers_of(environment))
    if (launcher.as == Launched::by_mpi && number_if_any(environment, launcher.size) == size &&
        number_if_any(environment, launcher.rank) == rank)
      return Launched::by_mpi;
  return Launched::otherwise;
}

// ---- Without a transport that brings ranks together ----

namespace {

// The rank and size of one launcher. Empty if the launcher has not started several processes.
Result<std::optional<Rendezvous>> place_of(const Launcher& launcher,
                                           const GetEnvironment& environment) {
  PENSTOCK_ASSIGN(const auto size, number(environment, launcher.size, 1, kMostRanks));
  if (size.value_or(1) == 1) return std::optional<Rendezvous>();
  PENSTOCK_ASSIGN(const auto rank, number(environment, launcher.rank, 0, *size - 1));
  if (!rank)
    return failed_precondition(
        "the launcher says {}={}, but not the rank of this process: {} is not set; start all "
        "processes with one launcher, or unset {}",
        launcher.size, *size, launcher.rank, launcher.size);
  Rendezvous place;
  place.rank = static_cast<uint32_t>(*rank);
  place.size = static_cast<uint32_t>(*size);
  place.said = fmt::format("{}={}, {}={}", launcher.rank, *rank, launcher.size, *size);
  return std::optional<Rendezvous>(std::move(place));
}

// "node03" of "node[03-07,9],other".
std::string first_host(std::string_view list) {
  const size_t end = list.find_first_of("[,");
  std::string host(list.substr(0, end));
  if (end == std::string_view::npos || list[end] == ',') return host;
  const std::string_view numbers = list.substr(end + 1);
  return host.append(numbers.substr(0, numbers.find_first_of("-,]")));
}

Status find_store(const GetEnvironment& environment, Rendezvous& place) {
  const std::string nodes = text(environment, "SLURM_STEP_NODELIST");
  const std::string job = text(environment, "SLURM_JOB_ID"),
                    step = text(environment, "SLURM_STEP_ID");
  place.host = text(environment, "MASTER_ADDR");
  if (place.host.empty() && !step.empty()) place.host = first_host(nodes);
  PENSTOCK_ASSIGN(const auto own, number(environment, "PENSTOCK_PORT", 1, kMostPort));
  PENSTOCK_ASSIGN(const auto master, number(environment, "MASTER_PORT", 1, kMostPort - 1));
  if (own)
    place.port = static_cast<uint16_t>(*own);
  else if (master)
    place.port = static_cast<uint16_t>(*master + 1);
  else if (!step.empty())
    place.port = static_cast<uint16_t>(kFirstSlurmPort + hash64(job + "." + step) % kSlurmPorts);
  if (place.host.empty() || place.port == 0)
    return failed_precondition(
        "this process is one of several ({}), but {} is not set; set MASTER_ADDR to the host of "
        "rank 0 and MASTER_PORT to a free port of that host, with equal values on all ranks",
        place.said, place.host.empty() ? "MASTER_ADDR" : "MASTER_PORT");
  place.said += fmt::format(", the store at {}:{}", place.host, place.port);
  place.token = text(environment, "PENSTOCK_TOKEN");
  if (place.token.size() > kMostToken)
    return invalid_argument("environment variable PENSTOCK_TOKEN has {} bytes, expected at most {}",
                            place.token.size(), kMostToken);
  place.may_be_shared = place.token.empty() && step.empty();
  if (place.token.empty())
    place.token = hash_text(hash64(fmt::format("{}:{} {}.{} {}", place.host, place.port, job, step,
                                               text(environment, "TORCHELASTIC_RUN_ID"))));
  return {};
}

// The values of the innermost launcher with complete values. If there is none, the error of the
// first incomplete launcher. srun is outside of all other launchers. If two other launchers
// contradict each other, the inner launcher is unknown, so that is an error.
Result<std::optional<Rendezvous>> innermost_word(const GetEnvironment& environment) {
  Status lacks;
  std::optional<Rendezvous> found;
  for (const Launcher& launcher : launchers_of(environment)) {
    if (found && launcher.as == Launched::by_step) break;
    Result<std::optional<Rendezvous>> word = place_of(launcher, environment);
    if (word.status().code() == Code::invalid_argument) return word;
    if (!word.ok() && lacks.ok()) lacks = word.status();
    if (!word.ok() || !word.value()) continue;
    if (found && (word.value()->rank != found->rank || word.value()->size != found->size))
      return failed_precondition(
          "two launchers contradict each other: {}, but {}; unset the variables of the launcher "
          "that did not start this process",
          found->said, word.value()->said);
    if (!found) found = std::move(word.value());
  }
  if (!found) PENSTOCK_TRY(lacks);
  return found;
}

}  // namespace

Result<std::optional<Rendezvous>> rendezvous_of(const GetEnvironment& environment) {
  PENSTOCK_ASSIGN(std::optional<Rendezvous> found, innermost_word(environment));
  if (found) PENSTOCK_TRY(find_store(environment, *found));
  return found;
}

Result<std::optional<Rendezvous>> named_store(uint32_t rank, uint32_t size,
                                              const GetEnvironment& environment) {
  if (size == 1 || text(environment, "PENSTOCK_PORT").empty() ||
      text(environment, "MASTER_ADDR").empty())
    return std::optional<Rendezvous>();
  Rendezvous place;
  place.rank = rank;
  place.size = size;
  place.said = fmt::format("rank {} of {}", rank, size);
  PENSTOCK_TRY(find_store(environment, place));
  return std::optional<Rendezvous>(std::move(place));
}

std::string other_word(uint32_t rank, uint32_t size, const GetEnvironment& environment) {
  const auto word = innermost_word(environment);
  if (!word.ok()) return std::string(word.status().message());
  if (!word.value() || (word.value()->rank == rank && word.value()->size == size)) return "";
  return word.value()->said;
}

}  // namespace penstock
