// The plugins that a configuration means where it names none, as data. No other file of the core
// knows a plugin by name (tools/ci/plugin_names.py checks that).
#pragma once

#include "core/base/kind.hpp"

#include <array>
#include <string_view>

namespace penstock::defaults {

// What [scheme] means without the key: gradients travel as they are, nothing is kept of them, and
// small ones travel together.
inline constexpr std::string_view kCompressor = "none";
inline constexpr std::string_view kMemory = "none";
inline constexpr std::string_view kScheduler = "fusion";

// What collective = "auto" means for each way to launch a run: the first of these that is there; if
// none is, the first.
inline constexpr std::array<std::string_view, 1> kUnderMpi = {"mpi"};
inline constexpr std::array<std::string_view, 2> kInStep = {"ucx", "mpi"};
// Without MPI's launcher each process would be alone over mpi.
inline constexpr std::array<std::string_view, 1> kOtherwise = {"ucx"};
inline constexpr std::array<std::string_view, 1> kAloneInStep = {"loopback"};
inline constexpr std::array<std::string_view, 2> kAlone = {"mpi", "loopback"};

// All that "auto" can mean, the usual ones first.
inline constexpr std::array<std::string_view, 3> kTransports = {"mpi", "ucx", "loopback"};

// The collective that stands for the frontend's transport: `collective = "lent"`.
inline constexpr std::string_view kLentCollective = "lent";

// A variable of Horovod that sets an option of a plugin here.
struct HorovodOption {
  const char* variable;
  Kind kind;
  std::string_view plugin;
  const char* option;
};
inline constexpr HorovodOption kFusionThreshold = {"HOROVOD_FUSION_THRESHOLD", Kind::scheduler,
                                                   "fusion", "threshold_bytes"};

}  // namespace penstock::defaults
