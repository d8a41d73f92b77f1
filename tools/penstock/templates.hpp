// Files that are compiled into the command.
#pragma once

#include <span>
#include <string_view>

namespace penstock::command {

struct Template {
  std::string_view name;  // "compressor.cpp.in"
  std::string_view text;
};
// Of templates/: what `penstock new` writes.
std::span<const Template> templates();
// "compressor/topk" and all others that come with Penstock.
std::span<const std::string_view> shipped_plugins();
// Of plan/profiles/: models, and what methods cost.
std::span<const Template> planning_tables();

}  // namespace penstock::command
