// Starts two ranks with each launcher, which average a number with README's two lines. A launcher
// is ok only if that run has succeeded.
#include "tools/penstock/doctor/launchers.hpp"

#include "tools/penstock/commands.hpp"
#include "tools/penstock/run/environment.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <sstream>

namespace penstock::command {

namespace {

constexpr double kLaunchSeconds = 120;  // torch is imported twice, perhaps from a cold disk
constexpr const char* kProgram = "penstock.hello";
constexpr const char* kSaid = "hello: ";       // before the program's finding
constexpr const char* kRemedy = "; remedy: ";  // after the finding, if it can be improved

// The most informative line: the program's finding, else the last line with an error.
std::string telling_line(const std::string& output) {
  std::string best, line;
  std::istringstream lines(output);
  while (std::getline(lines, line)) {
    if (const size_t at = line.find(kSaid); at != std::string::npos)
      return line.substr(at + std::string(kSaid).size());
    const bool is_error = line.find("Error: ") != std::string::npos;
    if (is_error && line.find("ChildFailedError") == std::string::npos) best = line;
    if (best.empty() && line.find_first_not_of(" \t=-") != std::string::npos) best = line;
  }
  return best;
}

Line tried(const std::string& launcher, const std::vector<std::string>& command) {
  tell_progress(
      fmt::format("starts two ranks with {}, at most {} s", launcher, int(kLaunchSeconds)));
  const Ran ran = run_program(command, kLaunchSeconds);
  std::string said = telling_line(ran.output);
  if (ran.status < 0)
    return {launcher, Health::problem,
            fmt::format("two ranks did not end within {} s", kLaunchSeconds),
            fmt::format("try by hand: {}", fmt::join(command, " "))};
  if (ran.status != 0) {
    const size_t end = said.rfind("; ");
    return {launcher, Health::problem, said.substr(0, end),
            end == std::string::npos ? fmt::format("try by hand: {}", fmt::join(command, " "))
                                     : said.substr(end + 2)};
  }
  const size_t remedy = said.find(kRemedy);
  if (remedy == std::string::npos) return {launcher, Health::ok, said, ""};
  return {launcher, Health::warning, said.substr(0, remedy),
          said.substr(remedy + std::string(kRemedy).size())};
}

}  // namespace

std::vector<Line> launcher_lines(const std::string& python) {
  std::vector<Line> lines;
  lines.push_back(tried("torchrun", {python, "-m", "torch.distributed.run", "--standalone",
                                     "--nproc-per-node", "2", "-m", kProgram}));
  if (!find_program("mpirun").empty()) {
    std::error_code ignored;
    const std::string own = std::filesystem::read_symlink("/proc/self/exe", ignored).string();
    lines.push_back(tried("penstock run", {own, "run", "-np", "2", "--", python, "-m", kProgram}));
  }
  if (!find_program("srun").empty())
    lines.push_back({"srun", Health::fact, "is there; not tried, because it would wait in a queue",
                     fmt::format("`srun -n 2 {} -m {}` tries it", python, kProgram)});
  return lines;
}

}  // namespace penstock::command
