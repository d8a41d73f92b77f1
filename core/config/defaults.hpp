// The plugins that a configuration uses if it names none, as data. No other file of the core knows
// a plugin by name (tools/ci/plugin_names.py checks that).
#pragma once

#include "core/base/kind.hpp"

#include <array>
#include <string_view>

namespace penstock::defaults {

// The values of [scheme] without keys: gradients travel uncompressed, nothing of them is kept, and
// small gradients travel together.
inline constexpr std::string_view kCompressor = "none";
inline constexpr std::string_view kMemory = "none";
inline constexpr std::string_view kScheduler = "fusion";

// The candidates of collective = "auto" for each way to launch a run: the first installed transport
// is used; if none is installed, the first name counts.
inline constexpr std::array<std::string_view, 1> kUnderMpi = {"mpi"};
inline constexpr std::array<std::string_view, 2> kInStep = {"ucx", "mpi"};
// Not mpi: without MPI's launcher each process would be alone in its world over mpi.
inline constexpr std::array<std::string_view, 1> kOtherwise = {"ucx"};
inline constexpr std::array<std::string_view, 1> kAloneInStep = {"loopback"};
inline constexpr std::array<std::string_view, 2> kAlone = {"mpi", "loopback"};

// All transports that "auto" can mean, the usual ones first.
inline constexpr std::array<std::string_view, 3> kTransports = {"mpi", "ucx", "loopback"};

// The collective that stands for the frontend's transport: `collective = "borrowed"`.
inline constexpr std::string_view kBorrowedCollective = "borrowed";

// An environment variable of Horovod that sets an option of a plugin.
struct HorovodOption {
  const char* variable;
  Kind kind;
  std::string_view plugin;
  const char* option;
};
inline constexpr HorovodOption kFusionThreshold = {"HOROVOD_FUSION_THRESHOLD", Kind::scheduler,
                                                   "fusion", "threshold_bytes"};

}  // namespace penstock::defaults
