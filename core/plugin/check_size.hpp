// The bounds that struct sizes from plugins are held against.
#pragma once

#include <penstock/plugin.h>

#include <cstddef>
#include <cstdint>

namespace penstock {

// No struct of the ABI comes near it: a larger struct_size is a mistake or garbage.
inline constexpr uint64_t kMostStructBytes = 65536;

// The size a struct had when it was first published, in ABI 0.1: the end of its last field then. A
// host whose own struct has grown must go on taking plugins that were built before.
inline constexpr uint64_t kFirstRecordBytes =
    offsetof(penstock_plugin_record, load) + sizeof(penstock_plugin_record::load);
inline constexpr uint64_t kFirstModuleBytes =
    offsetof(penstock_module, n_options) + sizeof(penstock_module::n_options);
inline constexpr uint64_t kFirstOptionBytes =
    offsetof(penstock_option, flags) + sizeof(penstock_option::flags);

}  // namespace penstock
