# Installs the SDK alone: cmake --install BUILD --component sdk --prefix PREFIX
#
# An outside project needs nothing else: the ABI's headers, the C++ layer, the kernels, the planning model, collective
# operations for transports and the kit for tests with their libraries, the bases of method families,
# penstock_add_plugin() and the package for find_package(PenstockSDK).
include(CMakePackageConfigHelpers)

# Sources include these headers as <kernels/...>, <collectives/...>, <methods/...>, <planning/...> and <testing/...>.
# They need their own root, because in include/penstock our memory.h would hide the system's <memory.h> from every user
# of the SDK.
set(sdk_extra_root ${CMAKE_INSTALL_INCLUDEDIR}/penstock/sdk)
set(sdk_package ${CMAKE_INSTALL_LIBDIR}/cmake/PenstockSDK)

set_target_properties(penstock_abi PROPERTIES EXPORT_NAME abi)
set_target_properties(penstock_sdk PROPERTIES EXPORT_NAME sdk)
set_target_properties(penstock_kernels PROPERTIES EXPORT_NAME kernels)
set_target_properties(penstock_planning PROPERTIES EXPORT_NAME planning)
set_target_properties(penstock_collectives PROPERTIES EXPORT_NAME collectives)
set_target_properties(penstock_testing PROPERTIES EXPORT_NAME testing)
set(sdk_targets penstock_abi penstock_sdk penstock_kernels penstock_planning penstock_collectives penstock_testing)
if(TARGET penstock_kernels_cuda)
  set_target_properties(penstock_kernels_cuda PROPERTIES EXPORT_NAME kernels_cuda)
  list(APPEND sdk_targets penstock_kernels_cuda)
endif()

install(TARGETS ${sdk_targets} EXPORT PenstockSDKTargets
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}/penstock/sdk COMPONENT sdk)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/sdk/include/penstock DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT sdk
  FILES_MATCHING PATTERN "*.h" PATTERN "*.hpp")
# The code paths behind the interfaces are private and are not installed.
set(sdk_hidden PATTERN "cpu" EXCLUDE PATTERN "element" EXCLUDE)
foreach(part IN ITEMS kernels methods planning collectives testing)
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/sdk/${part} DESTINATION ${sdk_extra_root} COMPONENT sdk
    FILES_MATCHING PATTERN "*.hpp" ${sdk_hidden})
endforeach()

configure_package_config_file(
  ${CMAKE_CURRENT_LIST_DIR}/PenstockSDKConfig.cmake.in ${CMAKE_CURRENT_BINARY_DIR}/PenstockSDKConfig.cmake
  INSTALL_DESTINATION ${sdk_package} NO_SET_AND_CHECK_MACRO)
# 0.x promises nothing between minor versions; from 1.0 on the major number decides.
write_basic_package_version_file(${CMAKE_CURRENT_BINARY_DIR}/PenstockSDKConfigVersion.cmake
  VERSION ${PROJECT_VERSION} COMPATIBILITY SameMinorVersion)
install(EXPORT PenstockSDKTargets NAMESPACE penstock:: DESTINATION ${sdk_package} COMPONENT sdk)
install(FILES
  ${CMAKE_CURRENT_BINARY_DIR}/PenstockSDKConfig.cmake ${CMAKE_CURRENT_BINARY_DIR}/PenstockSDKConfigVersion.cmake
  ${CMAKE_CURRENT_LIST_DIR}/PenstockPlugin.cmake ${CMAKE_CURRENT_LIST_DIR}/PenstockCuda.cmake
  ${CMAKE_CURRENT_LIST_DIR}/plugin.map
  DESTINATION ${sdk_package} COMPONENT sdk)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/sdk/template DESTINATION ${CMAKE_INSTALL_DATADIR}/penstock COMPONENT sdk
  OPTIONAL PATTERN "build" EXCLUDE)
