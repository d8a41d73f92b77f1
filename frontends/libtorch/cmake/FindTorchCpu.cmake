# find_package(TorchCpu): the CPU part of libtorch, as pip's torch or the libtorch archive carries it, without starting
# Python. torch's own find_package(Torch) wants a CUDA compiler where torch was built with CUDA, and finds libraries
# of other folders; this module takes headers and libraries of one folder or none.
#
# Where it looks, in this order; the first folder with include/torch and lib/libtorch_cpu.so counts:
#   PENSTOCK_TORCH   a folder, by CMake variable or environment; nothing else is looked at then
#   the environment .venv of the project that asks, and the active Python environment (VIRTUAL_ENV)
#
# Result: TorchCpu_FOUND, TorchCpu_VERSION, TorchCpu_FOLDER, TorchCpu_CXX11_ABI, TorchCpu_PROBLEM (a sentence where it
# is not found), and the target TorchCpu::TorchCpu.

# torch_cpu_folders(RESULT): folders that may contain torch.
function(torch_cpu_folders result)
  set(named ${PENSTOCK_TORCH})
  if(NOT named)
    set(named $ENV{PENSTOCK_TORCH})
  endif()
  if(named)
    set(${result} ${named} PARENT_SCOPE)
    return()
  endif()
  set(folders)
  foreach(environment IN ITEMS "${CMAKE_SOURCE_DIR}/.venv" "$ENV{VIRTUAL_ENV}")
    if(environment)
      file(GLOB found LIST_DIRECTORIES true "${environment}/lib/python3*/site-packages/torch")
      list(APPEND folders ${found})
    endif()
  endforeach()
  set(${result} ${folders} PARENT_SCOPE)
endfunction()

# torch_cpu_version(FOLDER RESULT): the version in its headers, empty if the headers have no version.
function(torch_cpu_version folder result)
  set(text "")
  foreach(header IN ITEMS torch/headeronly/version.h torch/csrc/api/include/torch/version.h)
    if(EXISTS ${folder}/include/${header})
      file(STRINGS ${folder}/include/${header} lines REGEX "define TORCH_VERSION_(MAJOR|MINOR|PATCH) ")
      string(APPEND text "${lines};")
    endif()
  endforeach()
  set(version "")
  if(text MATCHES "TORCH_VERSION_MAJOR ([0-9]+)")
    set(version ${CMAKE_MATCH_1})
    foreach(part IN ITEMS MINOR PATCH)
      if(text MATCHES "TORCH_VERSION_${part} ([0-9]+)")
        string(APPEND version ".${CMAKE_MATCH_1}")
      endif()
    endforeach()
  endif()
  set(${result} "${version}" PARENT_SCOPE)
endfunction()

# torch_cpu_abi(FOLDER RESULT): 1 or 0, the ABI of C++ strings with which torch was compiled.
function(torch_cpu_abi folder result)
  set(abi 1) # the ABI of all wheels since 2.7
  set(config ${folder}/share/cmake/Torch/TorchConfig.cmake)
  if(EXISTS ${config})
    file(STRINGS ${config} lines REGEX "_GLIBCXX_USE_CXX11_ABI=[01]")
    if(lines MATCHES "_GLIBCXX_USE_CXX11_ABI=([01])")
      set(abi ${CMAKE_MATCH_1})
    endif()
  endif()
  set(${result} ${abi} PARENT_SCOPE)
endfunction()

set(TorchCpu_FOLDER "")
set(TorchCpu_VERSION "")
torch_cpu_folders(torch_cpu_candidates)
foreach(folder IN LISTS torch_cpu_candidates)
  if(EXISTS ${folder}/include/torch/csrc/api/include/torch/torch.h AND EXISTS ${folder}/lib/libtorch_cpu.so
      AND EXISTS ${folder}/lib/libc10.so)
    set(TorchCpu_FOLDER ${folder})
    torch_cpu_version(${folder} TorchCpu_VERSION)
    torch_cpu_abi(${folder} TorchCpu_CXX11_ABI)
    break()
  endif()
endforeach()

if(TorchCpu_FOLDER)
  set(TorchCpu_PROBLEM "")
elseif(torch_cpu_candidates)
  list(JOIN torch_cpu_candidates " or " torch_cpu_places)
  string(CONCAT TorchCpu_PROBLEM "there is no libtorch in ${torch_cpu_places}: expected include/torch and, in the same "
    "folder, lib/libtorch_cpu.so and lib/libc10.so. Name torch's folder in PENSTOCK_TORCH")
else()
  string(CONCAT TorchCpu_PROBLEM "no libtorch was found. Install torch by pip and activate that environment, or name the "
    "folder of pip's torch or of the libtorch archive in PENSTOCK_TORCH")
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(TorchCpu REQUIRED_VARS TorchCpu_FOLDER TorchCpu_VERSION VERSION_VAR TorchCpu_VERSION
  REASON_FAILURE_MESSAGE "${TorchCpu_PROBLEM}")

if(TorchCpu_FOUND AND NOT TARGET TorchCpu::TorchCpu)
  set(headers ${TorchCpu_FOLDER}/include ${TorchCpu_FOLDER}/include/torch/csrc/api/include)
  add_library(TorchCpu::c10 SHARED IMPORTED)
  set_target_properties(TorchCpu::c10 PROPERTIES IMPORTED_LOCATION ${TorchCpu_FOLDER}/lib/libc10.so)
  add_library(TorchCpu::TorchCpu SHARED IMPORTED)
  set_target_properties(TorchCpu::TorchCpu PROPERTIES
    IMPORTED_LOCATION ${TorchCpu_FOLDER}/lib/libtorch_cpu.so
    INTERFACE_INCLUDE_DIRECTORIES "${headers}" # system headers, as for every imported target: no warnings
    INTERFACE_COMPILE_DEFINITIONS _GLIBCXX_USE_CXX11_ABI=${TorchCpu_CXX11_ABI}
    INTERFACE_LINK_LIBRARIES TorchCpu::c10)
endif()
