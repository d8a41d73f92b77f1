// The four kinds of plugins, with the numbers of penstock/plugin.h and the words of TOML and ids.
#pragma once

#include <penstock/plugin.h>

#include <array>
#include <optional>
#include <string_view>

namespace penstock {

enum class Kind : uint32_t {
  compressor = PENSTOCK_KIND_COMPRESSOR,
  memory = PENSTOCK_KIND_MEMORY,
  collective = PENSTOCK_KIND_COLLECTIVE,
  scheduler = PENSTOCK_KIND_SCHEDULER,
};

inline constexpr std::array<Kind, 4> kKinds = {Kind::compressor, Kind::memory, Kind::collective,
                                               Kind::scheduler};

// "compressor", "memory", "collective" or "scheduler".
constexpr std::string_view kind_name(Kind kind) {
  switch (kind) {
    case Kind::compressor:
      return "compressor";
    case Kind::memory:
      return "memory";
    case Kind::collective:
      return "collective";
    case Kind::scheduler:
      return "scheduler";
  }
  return "unknown";
}

constexpr std::optional<Kind> kind_from_name(std::string_view name) {
  for (Kind kind : kKinds)
    if (kind_name(kind) == name) return kind;
  return std::nullopt;
}

}  // namespace penstock
