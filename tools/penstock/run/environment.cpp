#include "tools/penstock/run/environment.hpp"

#include "tools/penstock/commands.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <string_view>

namespace penstock::command {

namespace {

constexpr std::array<std::string_view, 11> kPrefixes = {
    "PENSTOCK_", "HOROVOD_", "OMP_",   "MKL_",   "OPENBLAS_", "NCCL_",
    "CUDA_",     "PYTORCH_", "TORCH_", "PYTHON", "GLOO_"};
constexpr std::array<std::string_view, 3> kNames = {"PATH", "LD_LIBRARY_PATH", "VIRTUAL_ENV"};

}  // namespace

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
