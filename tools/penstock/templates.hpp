// Files that are compiled into the command.
#pragma once

#include <span>
#include <string_view>

namespace penstock::command {

struct Template {
  std::string_view name;  // "compressor.cpp.in"
  std::string_view text;
};
// The files of templates/, from which `penstock new` writes a plugin.
std::span<const Template> templates();
// The ids of all plugins that come with Penstock: "compressor/topk", ...
std::span<const std::string_view> shipped_plugins();
// The files of plan/profiles/: profiles of models, and the costs of methods.
std::span<const Template> planning_tables();

}  // namespace penstock::command
