// What a plugin's kernels run on: what all ranks have agreed on and the host hands out, and the
// scratch of a call. Not a plugin: each one compiles it into itself.
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

// [any, as above] The same with the host's workers, for kernels that share their work.
inline kernels::Execution agreed_execution(std::string_view family) {
  return {agreed_code_path(family), kernels::Workers(workers())};
}

// [any] `bytes` of scratch and what makes them whole cache lines: what follows is aligned again.
constexpr uint64_t whole_lines(uint64_t bytes) {
  return (bytes + 63) / 64 * 64;
}

// [step] The scratch of a call behind its first `bytes`, a multiple of 64, for a selection.
inline kernels::SelectScratch select_scratch(const Call& call, uint64_t bytes = 0) {
  return {static_cast<char*>(call.exec->scratch) + bytes, call.exec->scratch_bytes - bytes};
}

}  // namespace penstock::sdk
