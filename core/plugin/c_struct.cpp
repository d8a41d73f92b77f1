#include "core/plugin/c_struct.hpp"

#include <algorithm>

namespace penstock {

Status take_bytes(const void* theirs, std::string_view name, uint64_t first_bytes, uint64_t known,
                  void* ours) {
  if (theirs == nullptr) return invalid_argument("{} is null", name);
  const auto* bytes = static_cast<const unsigned char*>(theirs);
  uint64_t size = 0;
  std::memcpy(&size, bytes, sizeof size);
  if (size < first_bytes || size > kMostStructBytes)
    return invalid_argument(
        "{}.struct_size is {}, expected {}; it must be the sizeof of the "
        "struct where it was made",
        name, size, known);
  for (uint64_t i = known; i < size; ++i)
    if (bytes[i] != 0)
      return unimplemented(
          "{} has a field beyond byte {} set, which Penstock {} with ABI {}.{} does not know; use "
          "a newer Penstock, or do not use the feature that needs this field",
          name, known, PENSTOCK_VERSION, PENSTOCK_ABI_MAJOR, PENSTOCK_ABI_MINOR);
  const uint64_t shared = std::min(size, known);
  std::memcpy(ours, bytes, shared);
  std::memset(static_cast<unsigned char*>(ours) + shared, 0, known - shared);
  std::memcpy(ours, &known, sizeof known);
  return {};
}

}  // namespace penstock
