// Structs that a plugin or a frontend made, perhaps against older or newer headers.
//
// The core never reads such a struct directly: it takes a copy. Fields that are unknown to an older
// maker are zero in the copy, and zero always means "as before". A field that is set by a newer
// maker and unknown to the core is refused.
#pragma once

#include "core/base/status.hpp"

#include <penstock/plugin.h>
#include <penstock/runtime.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace penstock {

// Much larger than every struct of the ABI: a larger struct_size is a mistake or garbage.
inline constexpr uint64_t kMostStructBytes = 65536;

// The size of a struct when it was first published: the end of its last field at that time. A host
// with a larger version of the struct must still accept structs of the first size.
template <typename T>
inline constexpr uint64_t kFirstBytes = 0;

#define PENSTOCK_FIRST_BYTES(type, last) \
  template <>                            \
  inline constexpr uint64_t kFirstBytes<type> = offsetof(type, last) + sizeof(type::last)

// ABI 0.1.
PENSTOCK_FIRST_BYTES(penstock_plugin_record, load);
PENSTOCK_FIRST_BYTES(penstock_module, n_options);
PENSTOCK_FIRST_BYTES(penstock_option, flags);
PENSTOCK_FIRST_BYTES(penstock_state_declaration, flags);
PENSTOCK_FIRST_BYTES(penstock_section_bound, flags);
PENSTOCK_FIRST_BYTES(penstock_round, flags);
PENSTOCK_FIRST_BYTES(penstock_piece, device_type);
PENSTOCK_FIRST_BYTES(penstock_bucket, flags);
PENSTOCK_FIRST_BYTES(penstock_leg, launch);
PENSTOCK_FIRST_BYTES(penstock_tensor, flags);
PENSTOCK_FIRST_BYTES(penstock_runtime_options, borrowed_instance);
PENSTOCK_FIRST_BYTES(penstock_gradient_declaration, given_bucket);
PENSTOCK_FIRST_BYTES(penstock_set_declaration, reserved);
PENSTOCK_FIRST_BYTES(penstock_operation_declaration, average);
// ABI 0.9.
PENSTOCK_FIRST_BYTES(penstock_introduction, gather);
// ABI 0.14.
PENSTOCK_FIRST_BYTES(penstock_outer_step, nesterov);

#undef PENSTOCK_FIRST_BYTES

// Makes the copy: fills the `known` bytes at `ours` with the bytes of `theirs`, and with
// zeros behind their end. INVALID_ARGUMENT for a null or invalid struct, UNIMPLEMENTED if an
// unknown field is set. `name` begins the message.
Status take_bytes(const void* theirs, std::string_view name, uint64_t first_bytes, uint64_t known,
                  void* ours);

// [any] Copies `theirs` to `ours` and sets struct_size to the core's size. `ours` is unchanged
// after an error.
template <typename T>
Status take_struct(const T* theirs, std::string_view name, T& ours) {
  static_assert(kFirstBytes<T> != 0, "name the struct's last field of its first version above");
  return take_bytes(theirs, name, kFirstBytes<T>, sizeof(T), &ours);
}

// The other direction: fills a struct that its owner allocated and whose size its owner set.
template <typename T>
Status fill_struct(T* theirs, std::string_view name, const T& values) {
  if (theirs == nullptr) return invalid_argument("{} is null", name);
  const uint64_t size = theirs->struct_size;
  if (size < sizeof(uint64_t) || size > kMostStructBytes)
    return invalid_argument("{}.struct_size is {}, expected {}", name, size, sizeof(T));
  std::memcpy(theirs, &values, size < sizeof(T) ? size : sizeof(T));
  theirs->struct_size = size;
  return {};
}

}  // namespace penstock
