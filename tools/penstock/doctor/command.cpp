// penstock doctor: reports the equipment of this machine for a run, the problems, and the fixes.
#include "core/plugin/instances.hpp"
#include "tools/penstock/check/tests.hpp"
#include "tools/penstock/commands.hpp"
#include "tools/penstock/doctor/devices.hpp"
#include "tools/penstock/doctor/launchers.hpp"
#include "tools/penstock/run/environment.hpp"

#include <dlfcn.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include <CLI/CLI.hpp>
#include <kernels/fastest_path.hpp>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <thread>

namespace penstock::command {

namespace {

struct DoctorOptions {
  std::vector<std::string> files;
  std::vector<std::string> plugin_path;
  bool json = false;
};

// Of /dev/shm, in MiB for each rank (docs/launch.md).
constexpr uint64_t kShmOfUcx = 9, kShmOfMpi = 64;

const char* word(Health health) {
  constexpr const char* kWords[] = {"ok", "-", "warning", "problem"};
  return kWords[static_cast<int>(health)];
}

}  // namespace

// Each line replaces the one before; an empty one clears it.
void tell_progress(const std::string& what) {
  if (isatty(STDERR_FILENO) == 0) return;
  std::fprintf(stderr, "\r\033[K%s%s", what.empty() ? "" : "doctor ", what.c_str());
  std::fflush(stderr);
}

namespace {

std::string first_line(const std::string& text) {
  return text.substr(0, text.find('\n'));
}

Line cores() {
  return {"processor", Health::fact, fmt::format("{} cores", std::thread::hardware_concurrency()),
          ""};
}

// The code paths that a run on this machine would use. In a run on several machines rank 0 decides.
Line code_paths() {
  std::string found;
  for (const std::string_view family : kernels::code_path_families())
    found += fmt::format("{}{} {}", found.empty() ? "" : ", ", family.empty() ? "others" : family,
                         kernels::code_path_name(kernels::fastest_code_path(family)));
  return {"code paths", Health::fact, "fastest here: " + found, ""};
}

Line memory() {
  const double gib = static_cast<double>(sysconf(_SC_PHYS_PAGES)) *
                     static_cast<double>(sysconf(_SC_PAGE_SIZE)) / (1 << 30);
  const bool small = gib < 2;
  return {"memory", small ? Health::warning : Health::fact, fmt::format("{:.1f} GiB", gib),
          small ? "four ranks with a small model want about 2 GiB; run fewer ranks" : ""};
}

// Reports on mpirun, which penstock run and the transport mpi need. Other transports have other
// launchers.
Line mpirun(bool is_needed) {
  if (find_program("mpirun").empty())
    return {
        "mpirun", is_needed ? Health::problem : Health::warning, "not on the PATH",
        std::string("install Open MPI (Debian: apt-get install openmpi-bin), or run tools/setup") +
            (is_needed ? "" : "; torchrun and srun do without")};
  const Ran ran = run_program({"mpirun", "--version"}, 10);
  if (ran.status != 0)
    return {"mpirun", Health::problem, "does not start: " + first_line(ran.output),
            "install Open MPI again (Debian: apt-get install --reinstall openmpi-bin)"};
  const bool open_mpi = ran.output.find("Open MPI") != std::string::npos;
  return {"mpirun", open_mpi ? Health::fact : Health::warning, first_line(ran.output),
          open_mpi ? "" : "penstock run passes Open MPI's flags; put Open MPI first on the PATH"};
}

Line launch() {
  std::vector<std::string> arguments = {"mpirun", "-np", "2"};
  for (const std::string& flag : mpirun_flags()) arguments.push_back(flag);
  arguments.push_back("true");
  const Ran ran = run_program(arguments, 30);
  if (ran.status == 0) return {"two processes", Health::ok, "mpirun starts them on this host", ""};
  return {
      "two processes", Health::problem,
      ran.status < 0 ? "mpirun did not end within 30 s" : "mpirun says: " + first_line(ran.output),
      "try `mpirun -np 2 true` by hand; a host name that resolves, and a writable TMPDIR are the "
      "usual reasons"};
}

// Ranks of one host exchange through shared memory. Containers have 64 MiB of it.
Line shared_memory() {
  struct statvfs room {};
  if (statvfs("/dev/shm", &room) != 0)
    return {"shared memory", Health::warning, "there is no /dev/shm",
            "mount one (a tmpfs); without it ranks of a host exchange over TCP"};
  const auto mebibytes = [&](uint64_t blocks) { return blocks * room.f_frsize >> 20; };
  const uint64_t free = mebibytes(room.f_bavail), of_mpi = free / kShmOfMpi;
  const std::string found =
      fmt::format("/dev/shm has {} of {} MiB free: for {} ranks over ucx, {} over mpi", free,
                  mebibytes(room.f_blocks), free / kShmOfUcx, of_mpi);
  const bool is_small = of_mpi < std::thread::hardware_concurrency();
  return {"shared memory", is_small ? Health::warning : Health::fact, found,
          is_small ? "in a container give more, as in `docker run --shm-size=1g`; with more ranks "
                     "ucx goes on through System V memory, and mpi over TCP"
                   : ""};
}

Line interfaces() {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0)
    return {"network", Health::warning, "interfaces cannot be listed", "run on this host only"};
  std::string found;
  bool outside = false;
  for (const ifaddrs* each = list; each != nullptr; each = each->ifa_next) {
    if (each->ifa_addr == nullptr || each->ifa_addr->sa_family != AF_INET ||
        (each->ifa_flags & IFF_UP) == 0)
      continue;
    char address[NI_MAXHOST] = "";
    getnameinfo(each->ifa_addr, sizeof(sockaddr_in), address, sizeof address, nullptr, 0,
                NI_NUMERICHOST);
    found += fmt::format("{}{} {}", found.empty() ? "" : ", ", each->ifa_name, address);
    outside |= (each->ifa_flags & IFF_LOOPBACK) == 0;
  }
  freeifaddrs(list);
  if (found.empty())
    return {"network", Health::problem, "no interface is up",
            "bring up the loopback interface: ip link set lo up"};
  return {"network", outside ? Health::fact : Health::warning, found,
          outside ? "" : "only this host can take part in a run"};
}

std::string last_line(std::string text) {
  text.erase(text.find_last_not_of("\r\n ") + 1);
  return text.substr(text.rfind('\n') + 1);
}

// Reports on the Python that `penstock run -- python3` starts. It imports torch and penstock.torch,
// because an installed package may still lack the runtime, or the runtime a library. Returns that
// Python if it imports both, otherwise an empty string.
std::string python(std::vector<Line>& lines) {
  const std::string python = program_to_run("python3");
  const std::string fix =
      "install it for that Python (pip install torch), or in a checkout run tools/setup; then "
      "`penstock run` takes its .venv, or activate it: . .venv/bin/activate";
  if (python.find('/') == std::string::npos && find_program(python).empty()) {
    lines.push_back({"python", Health::problem, "python3 is not on the PATH", fix});
    return "";
  }
  constexpr double kSeconds = 120;  // torch loads slowly from a cold disk
  const auto imported = [&](const std::string& modules, const std::string& versions) {
    return run_program(
        {python, "-c", fmt::format("import sys, {}; print(sys.executable, {})", modules, versions)},
        kSeconds);
  };
  // Usually both can be imported, and a second process would load torch once more.
  const Ran both =
      imported("torch, penstock.torch, penstock", "torch.__version__, penstock.__version__");
  if (both.status == 0) {
    const std::string said = last_line(both.output);
    const size_t penstock_at = said.rfind(' '), torch_at = said.rfind(' ', penstock_at - 1);
    lines.push_back({"torch", Health::ok, said.substr(0, penstock_at), ""});
    lines.push_back(
        {"penstock.torch", Health::ok, said.substr(0, torch_at) + said.substr(penstock_at), ""});
    return python;
  }
  const Ran torch = imported("torch", "torch.__version__");
  const bool has_torch = torch.status == 0;
  if (has_torch) lines.push_back({"torch", Health::ok, last_line(torch.output), ""});
  const Ran& failed = has_torch ? both : torch;
  lines.push_back({has_torch ? "penstock.torch" : "torch", Health::problem,
                   fmt::format("{} does not import it: {}", python,
                               failed.status < 0 ? fmt::format("not done within {} s", kSeconds)
                                                 : last_line(failed.output)),
                   fix});
  return "";
}

// The path of libpenstock beside this command; empty if it is not there.
std::filesystem::path runtime_file() {
  const std::filesystem::path beside = program_directory();
  std::error_code ignored;
  for (const auto& path : {beside / "../lib/libpenstock.so.0", beside / "libpenstock.so.0"})
    if (std::filesystem::exists(path, ignored)) return path.lexically_normal();
  return {};
}

Line runtime(const std::filesystem::path& file) {
  if (file.empty())
    return {"libpenstock", Health::problem, "not beside this command, in ../lib",
            "build it: cmake --build build/release --target penstock"};
  const TestOutcome outcome = isolated(
      [&]() -> TestOutcome {
        if (dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL) != nullptr) return {};
        const char* error = dlerror();
        return {Verdict::failed, error != nullptr ? error : "it cannot be loaded"};
      },
      20);
  if (outcome.verdict == Verdict::ok) return {"libpenstock", Health::ok, file.string(), ""};
  return {"libpenstock", Health::problem, outcome.reason, "build again: tools/setup"};
}

// Reports on the searched folders. The folders of every run may be missing; a folder that the user
// named must exist.
void plugin_paths(const Registry& registry, std::vector<Line>& lines) {
  const std::vector<std::string> usual = plugin_directories({}, {});
  for (const Registry::Searched& searched : registry.searched()) {
    std::error_code ignored;
    const bool is_folder = std::filesystem::is_directory(searched.directory, ignored);
    const bool named = std::find(usual.begin(), usual.end(), searched.directory) == usual.end();
    const std::string found = searched.directory + ": " + searched.note;
    if (is_folder)
      lines.push_back({"plugin path", Health::ok, found, ""});
    else if (named)
      lines.push_back({"plugin path", Health::warning, found,
                       "name an existing folder in --plugin-path or PENSTOCK_PLUGIN_DIRECTORY"});
  }
}

// Reports on all plugins. Adds the ids of the plugins that can be loaded to `usable`.
void plugins(const DoctorOptions& options, std::vector<Line>& lines,
             std::vector<std::string>& usable) {
  Plugins found(options.plugin_path);
  Registry& registry = found.registry();
  plugin_paths(registry, lines);
  for (const SkippedFile& skipped : registry.skipped())
    lines.push_back({"plugin file", Health::warning, skipped.path + ": " + skipped.reason,
                     "remove it from the folder, or build it again"});
  for (const PluginFile& file : registry.files()) {
    const TestOutcome outcome = load_alone(registry, file);
    const bool is_whole = outcome.verdict == Verdict::ok;
    if (is_whole) usable.push_back(file.record.id);
    const size_t end =
        outcome.verdict == Verdict::warning ? outcome.reason.find("; ") : std::string::npos;
    if (!is_whole)
      lines.push_back({"plugin " + file.record.id, Health::warning, outcome.reason.substr(0, end),
                       end == std::string::npos ? "run `penstock check " + file.path + "`"
                                                : outcome.reason.substr(end + 2)});
  }
  if (!found.problem().ok())
    lines.push_back({"plugins", Health::problem, std::string(found.problem().message()),
                     "remove one file, or search only one folder"});
  if (registry.files().empty())
    lines.push_back({"plugins", Health::problem, "none found",
                     "build them (tools/setup), or name their folder: --plugin-path DIR or "
                     "PENSTOCK_PLUGIN_DIRECTORY"});
  else
    lines.push_back({"plugins", Health::ok,
                     fmt::format("{} found, {} usable", registry.files().size(), usable.size()),
                     ""});
}

// Reports on the transports that connect processes. Without a transport a program trains alone.
Line transports(const std::vector<std::string>& usable) {
  std::string found;
  for (const char* id : {"collective/mpi", "collective/ucx"})
    if (std::find(usable.begin(), usable.end(), id) != usable.end())
      found += fmt::format("{}{}", found.empty() ? "" : ", ", id);
  if (!found.empty()) return {"transports", Health::ok, found, ""};
  return {"transports", Health::warning,
          "no transport between processes can be loaded: a process group of torch must carry the "
          "messages",
          "pip install libucx-cu12 (it needs no device), install the library that a plugin lacks "
          "(above), or build again: tools/setup"};
}

// Reports on devices, and on the residence of the named schemes. If no scheme is named and there is
// a device, reports on the default scheme.
void devices(const DoctorOptions& options, const std::filesystem::path& library,
             std::vector<Line>& lines) {
  // The runtime finds the table beside itself.
  const std::vector<Line> found =
      device_lines(library.parent_path() / "libpenstock_device_cuda.so");
  lines.insert(lines.end(), found.begin(), found.end());
  for (const std::string& file : options.files)
    lines.push_back(scheme_on_device(file, options.plugin_path));
  if (options.files.empty() && found.front().more.contains("device"))
    lines.push_back(scheme_on_device("", options.plugin_path));
}

int doctor(const DoctorOptions& options) {
  const std::filesystem::path library = runtime_file();
  std::vector<Line> lines = {cores(),         code_paths(), memory(),
                             shared_memory(), interfaces(), runtime(library)};
  std::vector<std::string> usable;
  tell_progress("loads each plugin in a process of its own");
  plugins(options, lines, usable);
  lines.push_back(transports(usable));
  const bool over_ucx = std::find(usable.begin(), usable.end(), "collective/ucx") != usable.end();
  tell_progress("looks for launchers and for a Python with torch");
  lines.push_back(mpirun(!over_ucx));
  if (!find_program("mpirun").empty() && lines.back().health != Health::problem)
    lines.push_back(launch());
  if (const std::string python_found = python(lines); !python_found.empty())
    for (Line& line : launcher_lines(python_found)) lines.push_back(std::move(line));
  devices(options, library, lines);
  tell_progress("");

  Json json = Json::array();
  Table table({"STATE", "WHAT", "FOUND"});
  int problems = 0;
  for (const Line& line : lines) {
    problems += line.health == Health::problem;
    json.push_back(Json{{"subject", line.subject},
                        {"state", word(line.health)},
                        {"found", line.found},
                        {"fix", line.fix}});
    json.back().update(line.more);
    table.add({word(line.health), line.subject, line.found});
    if (!line.fix.empty()) table.add({"", "", "fix: " + line.fix});
  }
  if (options.json) {
    print_json(json);
  } else {
    print(table.text());
    print(problems == 0 ? "ready to run" : fmt::format("{} problem(s) to fix first", problems));
  }
  return problems == 0 ? 0 : 1;
}

}  // namespace

void add_doctor(CLI::App& app, Invocation& invocation) {
  auto options = std::make_shared<DoctorOptions>();
  CLI::App* doctor_app =
      app.add_subcommand("doctor", "Check this machine for runs, and say how to fix each problem");
  doctor_app->footer(
      "Exit status 1 if a run could not start.\n"
      "For each FILE: the gradients that its scheme compresses on a device, and the gradients\n"
      "that go through host memory.\n"
      "Example: penstock doctor conf/dgc.toml");
  doctor_app->add_option("FILE", options->files, "TOML files with schemes to check for devices");
  add_plugin_path(*doctor_app, options->plugin_path);
  add_json_flag(*doctor_app, options->json);
  doctor_app->callback([options, &invocation] { invocation.status = doctor(*options); });
}

}  // namespace penstock::command
