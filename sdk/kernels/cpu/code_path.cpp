// Finds the built code paths that this processor runs.
#include <kernels/code_path.hpp>

namespace penstock::kernels {

bool code_path_supported(CodePath path) noexcept {
#if defined(__x86_64__)
  switch (path) {
    case CodePath::kPortable:
      return true;
    case CodePath::kAvx2:
      return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    case CodePath::kAvx512:
      return code_path_supported(CodePath::kAvx2) && __builtin_cpu_supports("avx512f");
  }
  return false;
#else
  return path == CodePath::kPortable;
#endif
}

CodePath widest_code_path() noexcept {
  static const CodePath widest = [] {
    CodePath best = CodePath::kPortable;
    for (const CodePath path : kAllCodePaths)
      if (code_path_supported(path)) best = path;
    return best;
  }();
  return widest;
}

CodePath code_path_named(std::string_view name) noexcept {
  for (const CodePath path : kAllCodePaths)
    if (name == code_path_name(path) && code_path_supported(path)) return path;
  return widest_code_path();
}

std::string_view code_path_name(CodePath path) noexcept {
  switch (path) {
    case CodePath::kPortable:
      return "portable";
    case CodePath::kAvx2:
      return "avx2";
    case CodePath::kAvx512:
      return "avx512";
  }
  return "unknown";
}

}  // namespace penstock::kernels
