# The files that find_package(Penstock) reads in an installed tree.
include(CMakePackageConfigHelpers)

# penstock_install_package(TORCH): the target of the runtime, and the target of the frontend with the minor version of
# torch for which it was built.
function(penstock_install_package torch)
  set(package ${CMAKE_INSTALL_LIBDIR}/cmake/Penstock)
  set(penstock_built_for_torch "${torch}")
  configure_package_config_file(
    ${CMAKE_CURRENT_SOURCE_DIR}/cmake/PenstockConfig.cmake.in ${CMAKE_CURRENT_BINARY_DIR}/PenstockConfig.cmake
    INSTALL_DESTINATION ${package} NO_SET_AND_CHECK_MACRO)
  write_basic_package_version_file(${CMAKE_CURRENT_BINARY_DIR}/PenstockConfigVersion.cmake
    VERSION ${PROJECT_VERSION} COMPATIBILITY SameMinorVersion)
  install(FILES ${CMAKE_CURRENT_BINARY_DIR}/PenstockConfig.cmake ${CMAKE_CURRENT_BINARY_DIR}/PenstockConfigVersion.cmake
    DESTINATION ${package})
  install(EXPORT PenstockCoreTargets NAMESPACE penstock:: DESTINATION ${package})
  if(torch)
    install(TARGETS penstock_libtorch EXPORT PenstockLibtorchTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
    install(EXPORT PenstockLibtorchTargets NAMESPACE penstock:: DESTINATION ${package})
    install(FILES ${CMAKE_CURRENT_SOURCE_DIR}/include/penstock/torch.hpp
      DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/penstock)
    install(FILES ${CMAKE_CURRENT_SOURCE_DIR}/cmake/FindTorchCpu.cmake DESTINATION ${package})
  endif()
endfunction()
