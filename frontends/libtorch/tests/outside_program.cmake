# An outside project against the installed tree only: the blocks of the guide are configured and built without changes,
# and run on one rank and on two. Then the errors of find_package.
#
# cmake -DBUILD=... -DWORK=... -DTORCH=... -DPAGE=... -DGENERATOR=... -DCXX_COMPILER=... -DLAUNCHER=... -P outside_program.cmake

# Runs a command; on failure prints the failed step and its output.
function(step text)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE code OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT code EQUAL 0)
    list(JOIN ARGN " " line)
    message(FATAL_ERROR "${text} failed (${code}):\n  ${line}\n${output}")
  endif()
  set(output "${output}" PARENT_SCOPE)
  message(STATUS "${text}: done")
endfunction()

# Writes the fenced block that follows `<!-- block: NAME -->` to FILE.
function(write_block name file)
  string(FIND "${page}" "<!-- block: ${name} -->" start)
  if(start EQUAL -1)
    message(FATAL_ERROR "${PAGE} has no block named ${name}")
  endif()
  string(SUBSTRING "${page}" ${start} -1 rest)
  string(REGEX MATCH "\n```[a-z]+\n" fence "${rest}")
  string(FIND "${rest}" "${fence}" start)
  string(LENGTH "${fence}" length)
  math(EXPR start "${start} + ${length}")
  string(SUBSTRING "${rest}" ${start} -1 rest)
  string(FIND "${rest}" "\n```\n" end)
  math(EXPR end "${end} + 1")
  string(SUBSTRING "${rest}" 0 ${end} block)
  file(WRITE ${file} "${block}")
endfunction()

# refused(TEXT SENTENCE ARGUMENTS...): configuring with these arguments fails with this sentence.
function(refused text sentence)
  execute_process(COMMAND ${configure} -B ${WORK}/refused ${ARGN} RESULT_VARIABLE code OUTPUT_VARIABLE said ERROR_VARIABLE said)
  file(REMOVE_RECURSE ${WORK}/refused)
  string(REGEX REPLACE "[ \n]+" " " said "${said}") # cmake breaks lines
  string(FIND "${said}" "${sentence}" at)
  if(code EQUAL 0 OR at EQUAL -1)
    message(FATAL_ERROR "${text}: expected it to be refused with '${sentence}', got ${code}:\n${said}")
  endif()
  message(STATUS "${text}: refused")
endfunction()

file(REMOVE_RECURSE ${WORK})
file(MAKE_DIRECTORY ${WORK}/train)
file(READ ${PAGE} page)
write_block(program ${WORK}/train/train.cpp)
write_block(project ${WORK}/train/CMakeLists.txt)
write_block(recipes ${WORK}/train/recipes.cpp)
file(APPEND ${WORK}/train/CMakeLists.txt "target_sources(train PRIVATE recipes.cpp)\n")

step("installing" ${CMAKE_COMMAND} --install ${BUILD} --prefix ${WORK}/installed)
file(GLOB_RECURSE package_files ${WORK}/installed/*/cmake/Penstock/*.cmake)
foreach(file IN LISTS package_files)
  file(STRINGS ${file} lines)
  foreach(path IN ITEMS ${BUILD} ${TORCH})
    string(FIND "${lines}" "${path}" at)
    if(NOT at EQUAL -1)
      message(FATAL_ERROR "${file} points to ${path}")
    endif()
  endforeach()
endforeach()

set(configure ${CMAKE_COMMAND} -S ${WORK}/train -G ${GENERATOR} -DCMAKE_PREFIX_PATH=${WORK}/installed -DCMAKE_BUILD_TYPE=Debug
  -DCMAKE_CXX_COMPILER=${CXX_COMPILER} -DCMAKE_CXX_COMPILER_LAUNCHER=${LAUNCHER} "-DCMAKE_CXX_FLAGS=-Wall -Wextra -Werror")
step("configuring the program" ${configure} -B ${WORK}/build -DPENSTOCK_TORCH=${TORCH})
step("building the program" ${CMAKE_COMMAND} --build ${WORK}/build)
foreach(ranks IN ITEMS 1 2)
  step("running it on ${ranks}" ${CMAKE_COMMAND} -E env --unset=PENSTOCK_PLUGIN_DIRECTORY OMP_NUM_THREADS=1
    ${WORK}/installed/bin/penstock run -np ${ranks} -- ${WORK}/build/train)
  if(NOT output MATCHES "loss [0-9.e-]+ on ${ranks} ranks")
    message(FATAL_ERROR "the program told no loss:\n${output}")
  endif()
endforeach()

# The C door alone, without torch.
file(WRITE ${WORK}/core/main.c "#include <penstock/runtime.h>\n#include <stdio.h>\n"
  "int main(void) { return printf(\"%.*s\\n\", (int)penstock_version().size, penstock_version().data) < 0; }\n")
file(WRITE ${WORK}/core/CMakeLists.txt "cmake_minimum_required(VERSION 3.25)\nproject(door LANGUAGES C CXX)\n"
  "find_package(Penstock REQUIRED)\nadd_executable(door main.c)\ntarget_link_libraries(door PRIVATE penstock::core)\n")
step("configuring a program of the C door" ${CMAKE_COMMAND} -S ${WORK}/core -B ${WORK}/core/build -G ${GENERATOR}
  -DCMAKE_PREFIX_PATH=${WORK}/installed)
step("building it" ${CMAKE_COMMAND} --build ${WORK}/core/build)
step("running it" ${WORK}/core/build/door)

refused("a torch that is not there" "there is no libtorch in ${WORK}/nowhere" -DPENSTOCK_TORCH=${WORK}/nowhere)
file(MAKE_DIRECTORY ${WORK}/old/lib ${WORK}/old/include/torch/csrc/api/include/torch)
file(WRITE ${WORK}/old/include/torch/csrc/api/include/torch/version.h
  "#define TORCH_VERSION_MAJOR 2\n#define TORCH_VERSION_MINOR 0\n#define TORCH_VERSION_PATCH 1\n")
foreach(file IN ITEMS include/torch/csrc/api/include/torch/torch.h lib/libtorch_cpu.so lib/libc10.so)
  file(TOUCH ${WORK}/old/${file})
endforeach()
refused("a torch of another version" "and ${WORK}/old has 2.0.1" -DPENSTOCK_TORCH=${WORK}/old)
file(WRITE ${WORK}/train/CMakeLists.txt
  "cmake_minimum_required(VERSION 3.25)\nproject(train LANGUAGES CXX)\nfind_package(Penstock REQUIRED COMPONENTS core jax)\n")
refused("an unknown component" "component 'jax' of Penstock is not known, expected core or libtorch")
