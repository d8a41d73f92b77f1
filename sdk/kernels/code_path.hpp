// The instruction set that a kernel uses. Kernels that take a CodePath give equal bits on all
// paths, so the choice affects only speed.
#pragma once

#include <string_view>

namespace penstock::kernels {

enum class CodePath { kPortable = 0, kAvx2 = 1, kAvx512 = 2 };

inline constexpr CodePath kAllCodePaths[] = {CodePath::kPortable, CodePath::kAvx2,
                                             CodePath::kAvx512};

// Whether this processor and its operating system can run `path`. [any]
bool code_path_supported(CodePath path) noexcept;

// The widest path that this processor runs. [any]
CodePath widest_code_path() noexcept;

// The path called `name` ("portable", "avx2", "avx512") if this processor runs it, else the widest
// path. An empty or unknown name also gives the widest path. [any]
CodePath code_path_named(std::string_view name) noexcept;

// "portable", "avx2" or "avx512". [any]
std::string_view code_path_name(CodePath path) noexcept;

}  // namespace penstock::kernels
