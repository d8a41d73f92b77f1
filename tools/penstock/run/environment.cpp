#include "tools/penstock/run/environment.hpp"

#include "core/control/protocol.hpp"
#include "core/control/socket.hpp"
#include "tools/penstock/commands.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>
#include <string_view>

namespace penstock::command {

namespace {

constexpr std::array<std::string_view, 12> kPrefixes = {
    "PENSTOCK_", "HOROVOD_", "OMP_",   "MKL_",   "OPENBLAS_", "NCCL_",
    "CUDA_",     "PYTORCH_", "TORCH_", "PYTHON", "GLOO_",     "MASTER_"};
constexpr std::array<std::string_view, 3> kNames = {"PATH", "LD_LIBRARY_PATH", "VIRTUAL_ENV"};

std::string first_host(const std::string& file) {
  std::ifstream hosts(file);
  for (std::string line; std::getline(hosts, line);) {
    std::istringstream words(line.substr(0, line.find('#')));
    if (std::string host; words >> host) return host;
  }
  return "127.0.0.1";
}

constexpr uint32_t kFirstPort = 10000;

// The first port that the system uses for outgoing connections. Such a connection could take a port
// between its choice here and the start of the run.
uint32_t first_outgoing_port() {
  uint32_t first = 0;
  std::ifstream("/proc/sys/net/ipv4/ip_local_port_range") >> first;
  return first > kFirstPort + 1000 ? std::min<uint32_t>(first, UINT16_MAX) : UINT16_MAX;
}

bool is_free(uint16_t port) {
  return control::listen_on(control::kEveryAddress, port).ok();
}

}  // namespace

void set_rendezvous_place(const std::string& hosts) {
  setenv("MASTER_ADDR", first_host(hosts).c_str(), 0);
  std::random_device any;
  // The token distinguishes this run from another run at this address.
  if (const Result<std::string> token = control::make_token(); token.ok())
    setenv("PENSTOCK_TOKEN", token.value().c_str(), 0);
  // The store of a run without MPI listens at the next port.
  std::uniform_int_distribution<uint32_t> ports(kFirstPort, first_outgoing_port() - 2);
  for (int tries = 0; tries < 50; ++tries) {
    const auto port = static_cast<uint16_t>(ports(any));
    if (!is_free(port) || !is_free(static_cast<uint16_t>(port + 1))) continue;
    setenv("MASTER_PORT", std::to_string(port).c_str(), 0);
    return;
  }
}

std::vector<std::string> forwarded_variables() {
  std::vector<std::string> names;
  for (char** each = environ; *each != nullptr; ++each) {
    const std::string_view variable = *each;
    const std::string_view name = variable.substr(0, variable.find('='));
    const bool wanted =
        std::find(kNames.begin(), kNames.end(), name) != kNames.end() ||
        std::any_of(kPrefixes.begin(), kPrefixes.end(),
                    [&](std::string_view prefix) { return name.starts_with(prefix); });
    if (wanted) names.emplace_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::string program_to_run(const std::string& name) {
  if (name != "python" && name != "python3") return name;
  const char* named = std::getenv("PENSTOCK_PYTHON");
  if (named != nullptr && *named != '\0') return named;
  const char* active = std::getenv("VIRTUAL_ENV");
  if (active != nullptr && *active != '\0') return name;
  namespace fs = std::filesystem;
  // CHECKOUT/build/PRESET/bin
  const fs::path checkout = fs::path(program_directory()).parent_path().parent_path().parent_path();
  const fs::path python = checkout / ".venv/bin" / name;
  std::error_code ignored;
  const bool is_checkout = fs::is_regular_file(checkout / "CMakePresets.json", ignored);
  return is_checkout && access(python.c_str(), X_OK) == 0 ? python.string() : name;
}

}  // namespace penstock::command
