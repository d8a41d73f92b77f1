# penstock_add_plugin(KIND NAME SOURCES ... [TESTS ...] [LIBRARIES ...] [ON_DEVICES])
#
# Builds KIND-NAME.so: a module that exports one symbol, hides all others and is linked so that every undefined symbol
# is found at link time. KIND is compressor, memory, collective or scheduler. With TESTS and GoogleTest found, also
# NAME_KIND_test, which has the kit for tests (penstock::testing) and the path of the built plugin in the macro
# PENSTOCK_PLUGIN_FILE. The file is put into PENSTOCK_PLUGIN_DIRECTORY, by default the folder `plugins` of the build tree.
#
# The same file serves this repository and projects that found the installed SDK (find_package(PenstockSDK)).
# SOURCES may hold .cu files, compiled without fused multiply-add; penstock_enable_cuda() comes before, and LIBRARIES may name
# penstock::kernels_cuda where the SDK was built with CUDA. ON_DEVICES does the latter by itself: the plugin's methods ask
# methods/device/, which has the kernels then; in an SDK without CUDA the plugin is one for the CPU.
include_guard(GLOBAL)
include(${CMAKE_CURRENT_LIST_DIR}/PenstockCuda.cmake)

# penstock_plugin_options(TARGET): the compile options of every plugin.
function(penstock_plugin_options target)
  target_link_libraries(${target} PRIVATE penstock::sdk)
  target_compile_features(${target} PRIVATE cxx_std_20)
  set_target_properties(${target} PROPERTIES
    CXX_VISIBILITY_PRESET hidden C_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON
    POSITION_INDEPENDENT_CODE ON DEFINE_SYMBOL "")
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:C,CXX>:-ffp-contract=off>)
endfunction()

# penstock_plugin_headers(TARGET): the headers that most plugins include are compiled once for this repository. The
# preset dev does not do this and so finds a missing include.
function(penstock_plugin_headers target)
  if(NOT PROJECT_NAME STREQUAL "Penstock" OR CMAKE_DISABLE_PRECOMPILE_HEADERS)
    return()
  endif()
  if(NOT TARGET penstock_plugin_base)
    file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/plugin_base.cpp CONTENT "")
    add_library(penstock_plugin_base MODULE EXCLUDE_FROM_ALL ${CMAKE_BINARY_DIR}/plugin_base.cpp)
    penstock_plugin_options(penstock_plugin_base)
    target_precompile_headers(penstock_plugin_base PRIVATE <penstock/compressor.hpp> <penstock/memory.hpp> <algorithm> <array>
      <chrono> <cmath> <cstring> <functional> <limits> <map> <memory> <mutex> <numeric> <optional> <random> <set> <string>
      <thread> <vector>)
    if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
      target_compile_options(penstock_plugin_base PRIVATE -fpch-preprocess) # for ccache
    endif()
  endif()
  target_precompile_headers(${target} REUSE_FROM penstock_plugin_base)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-fpch-preprocess>)
  endif()
endfunction()

function(penstock_add_plugin kind name)
  cmake_parse_arguments(ARG "ON_DEVICES" "" "SOURCES;TESTS;LIBRARIES" ${ARGN})
  if(NOT kind MATCHES "^(compressor|memory|collective|scheduler)$")
    message(FATAL_ERROR "penstock_add_plugin: kind is '${kind}', expected compressor, memory, collective or scheduler")
  endif()
  set(version_script ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/plugin.map)
  set(target penstock-${kind}-${name})
  add_library(${target} MODULE ${ARG_SOURCES})
  penstock_plugin_options(${target})
  penstock_plugin_headers(${target})
  target_link_libraries(${target} PRIVATE ${ARG_LIBRARIES})
  if(ARG_ON_DEVICES AND TARGET penstock::kernels_cuda)
    target_link_libraries(${target} PRIVATE penstock::kernels_cuda)
    target_compile_definitions(${target} PRIVATE PENSTOCK_DEVICE_KERNELS)
  endif()
  set_target_properties(${target} PROPERTIES PREFIX "" OUTPUT_NAME ${kind}-${name} SUFFIX .so)
  set(directory ${PENSTOCK_PLUGIN_DIRECTORY})
  if(NOT directory)
    set(directory ${PROJECT_BINARY_DIR}/plugins)
  endif()
  set_target_properties(${target} PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${directory})
  penstock_cuda_target(${target})
  set(strict_link "-Wl,-z,defs")
  if(PENSTOCK_SANITIZE)
    set(strict_link "") # the sanitizer's runtime is found in the program that loads the plugin
  endif()
  target_link_options(${target} PRIVATE
    -Wl,--version-script=${version_script} ${strict_link} -Wl,-z,now -Wl,-z,relro
    -Wl,-z,noexecstack -Wl,--exclude-libs,ALL)
  set_property(TARGET ${target} APPEND PROPERTY LINK_DEPENDS ${version_script})
  set_property(GLOBAL APPEND PROPERTY PENSTOCK_PLUGIN_TARGETS ${target})
  if(ARG_TESTS AND TARGET GTest::gtest_main)
    set(test ${name}_${kind}_test)
    set(plugin_file $<TARGET_FILE:${target}>)
    if(COMMAND penstock_test)
      # Only the file's name, which the tests' support looks up, so that compiled code contains no path of this build.
      set(plugin_file $<TARGET_FILE_NAME:${target}>)
      penstock_test(${test} SOURCES ${ARG_TESTS} LIBRARIES penstock::sdk penstock_test_support ${ARG_LIBRARIES})
    else()
      add_executable(${test} ${ARG_TESTS})
      target_link_libraries(${test} PRIVATE penstock::testing ${ARG_LIBRARIES} GTest::gtest_main)
      add_test(NAME ${test} COMMAND ${test})
    endif()
    if(TARGET ${test})
      target_compile_definitions(${test} PRIVATE PENSTOCK_PLUGIN_FILE="${plugin_file}")
      add_dependencies(${test} ${target})
    endif()
  endif()
  if(PROJECT_NAME STREQUAL "Penstock")
    install(TARGETS ${target} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/penstock/plugins COMPONENT runtime)
  endif()
endfunction()
