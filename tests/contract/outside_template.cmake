# A stranger's project against the installed SDK and nothing else of this tree:
#   1. installs the SDK alone into a folder of its own,
#   2. copies sdk/template out of the installed files and builds it there as a project of its own,
#   3. runs its tests,
#   4. lets the penstock command check the plugin.
#
# cmake -DBUILD=... -DWORK=... -DPENSTOCK=... -DGENERATOR=... -DC_COMPILER=... -DCXX_COMPILER=... -DLAUNCHER=...
#   -P outside_template.cmake

# Runs a command; on failure prints the failed step and its output.
function(step text)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE code OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT code EQUAL 0)
    list(JOIN ARGN " " line)
    message(FATAL_ERROR "${text} failed (${code}):\n  ${line}\n${output}")
  endif()
  message(STATUS "${text}: done")
endfunction()

file(REMOVE_RECURSE ${WORK})
file(MAKE_DIRECTORY ${WORK})
step("installing the SDK" ${CMAKE_COMMAND} --install ${BUILD} --component sdk --prefix ${WORK}/sdk)
file(COPY ${WORK}/sdk/share/penstock/template DESTINATION ${WORK})

# The installed package must not contain a path of the tree from which it came.
file(GLOB_RECURSE package_files ${WORK}/sdk/*.cmake)
foreach(file IN LISTS package_files)
  file(STRINGS ${file} lines)
  foreach(line IN LISTS lines)
    string(FIND "${line}" "${BUILD}" at)
    if(NOT at EQUAL -1 AND NOT line MATCHES "^ *#")
      message(FATAL_ERROR "${file} points into the build tree: ${line}")
    endif()
  endforeach()
endforeach()

step("configuring the template" ${CMAKE_COMMAND} -S ${WORK}/template -B ${WORK}/template/build -G ${GENERATOR}
  -DCMAKE_PREFIX_PATH=${WORK}/sdk -DCMAKE_BUILD_TYPE=Release
  -DCMAKE_C_COMPILER=${C_COMPILER} -DCMAKE_CXX_COMPILER=${CXX_COMPILER}
  -DCMAKE_CXX_COMPILER_LAUNCHER=${LAUNCHER} "-DCMAKE_CXX_FLAGS=-Wall -Wextra -Werror")
step("building the template" ${CMAKE_COMMAND} --build ${WORK}/template/build)
step("testing the template" ${CMAKE_CTEST_COMMAND} --test-dir ${WORK}/template/build --output-on-failure --no-tests=error)

set(plugin ${WORK}/template/build/plugins/compressor-template.so)
if(NOT EXISTS ${plugin})
  message(FATAL_ERROR "the template built no ${plugin}")
endif()
if(NOT EXISTS ${PENSTOCK})
  message(FATAL_ERROR "the penstock command is not at ${PENSTOCK}; build everything first")
endif()
step("penstock check" ${PENSTOCK} check ${plugin})
