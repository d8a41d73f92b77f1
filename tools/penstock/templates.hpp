// The files of templates/, compiled into the command.
#pragma once

#include <span>
#include <string_view>

namespace penstock::command {

struct Template {
  std::string_view name;  // "compressor.cpp.in"
  std::string_view text;
};
std::span<const Template> templates();

}  // namespace penstock::command
