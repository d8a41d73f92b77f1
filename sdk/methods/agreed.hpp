// Where a plugin's kernels run: the instruction set on which all ranks have agreed, the workers
// that the host provides, and the scratch of a call. Each plugin compiles its own copy.
#pragma once

#include <kernels/execution.hpp>
#include <kernels/select.hpp>
#include <penstock/views.hpp>

#include <string_view>

namespace penstock::sdk {

// [any, in a plugin's constructor at the earliest] The instruction set for kernels of `family`.
inline kernels::CodePath agreed_code_path(std::string_view family) {
  const std::string_view name = code_path(family);
  return family == "select" ? kernels::select_code_path(name) : kernels::code_path_named(name);
}

// [any, in a plugin's constructor at the earliest] The instruction set and the host's workers, for
// kernels that divide their work.
inline kernels::Execution agreed_execution(std::string_view family) {
  return {agreed_code_path(family), kernels::Workers(workers())};
}

// [any] `bytes` of scratch rounded up to whole cache lines, so that the bytes behind are aligned.
constexpr uint64_t whole_lines(uint64_t bytes) {
  return (bytes + 63) / 64 * 64;
}

// [step] The scratch of a call behind its first `bytes`, a multiple of 64, for a selection.
inline kernels::SelectScratch select_scratch(const Call& call, uint64_t bytes = 0) {
  return {static_cast<char*>(call.exec->scratch) + bytes, call.exec->scratch_bytes - bytes};
}

}  // namespace penstock::sdk
