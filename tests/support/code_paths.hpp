// The code paths that run on this processor.
#pragma once

#include <kernels/code_path.hpp>

#include <vector>

namespace penstock::test {

inline std::vector<kernels::CodePath> supported_paths() {
  std::vector<kernels::CodePath> all;
  for (const kernels::CodePath path : kernels::kAllCodePaths)
    if (kernels::code_path_supported(path)) all.push_back(path);
  return all;
}

}  // namespace penstock::test
