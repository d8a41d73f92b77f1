# Writes OUTPUT, a C++ file with the function FUNCTION of templates.hpp, which returns the text of each file of the
# list TEMPLATES.
set(body "")
foreach(template IN LISTS TEMPLATES)
  get_filename_component(name ${template} NAME)
  file(READ ${template} text)
  string(APPEND body "    {\"${name}\", R\"template(${text})template\"},\n")
endforeach()
file(WRITE ${OUTPUT} "// Made by embed.cmake.
#include \"tools/penstock/templates.hpp\"

namespace penstock::command {

std::span<const Template> ${FUNCTION}() {
  static const Template all[] = {
${body}  };
  return all;
}

}  // namespace penstock::command
")
