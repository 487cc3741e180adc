# SPDX-License-Identifier: Apache-2.0
#
# Installs the headers, the libraries, the programs, and the package that find_package(penstock) finds. The installed tree can
# be moved: neither the package nor the file names in messages contain a path of the machine that built it
# (-fmacro-prefix-map in CMakeLists.txt). Debug information does contain such paths.

include(CMakePackageConfigHelpers)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/penstock)

install(DIRECTORY include/penstock src/emulation/include/penstock
        DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(TARGETS penstock_headers EXPORT penstock-targets)
install(EXPORT penstock-targets NAMESPACE penstock:: DESTINATION ${package_dir})
if(PENSTOCK_WITH_EMULATION)
  install(TARGETS penstock_emulated EXPORT penstock-emulated-targets)
  install(EXPORT penstock-emulated-targets NAMESPACE penstock:: DESTINATION ${package_dir})
endif()
if(TARGET penstock_trace)
  install(DIRECTORY src/trace/include/penstock DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
  install(TARGETS penstock_trace EXPORT penstock-trace-targets)
  install(EXPORT penstock-trace-targets NAMESPACE penstock:: DESTINATION ${package_dir})
  install(TARGETS penstock_trace_inject LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
endif()
if(TARGET penstock-trace)
  install(TARGETS penstock-trace)
endif()
if(TARGET penstock_images)
  install(DIRECTORY src/images/include/penstock DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
  install(TARGETS penstock_images EXPORT penstock-images-targets)
  install(EXPORT penstock-images-targets NAMESPACE penstock:: DESTINATION ${package_dir})
endif()
if(TARGET penstock_remote)
  install(DIRECTORY src/remote/include/penstock DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
  install(TARGETS penstock_remote EXPORT penstock-remote-targets)
  install(EXPORT penstock-remote-targets NAMESPACE penstock:: DESTINATION ${package_dir})
endif()
if(TARGET penstock-pack)
  install(TARGETS penstock-pack)
endif()
if(PENSTOCK_WITH_CUDA)
  install(TARGETS penstock_penstock penstock_header_only EXPORT penstock-cuda-targets)
  install(EXPORT penstock-cuda-targets NAMESPACE penstock:: DESTINATION ${package_dir})
endif()

# The emulated runtime replaces the library of one major version of CUDA, and the libraries may call functions that are new
# in the minor version. So the package accepts headers from the version of this build up to the next major version.
set(PENSTOCK_CUDA_VERSION ${PenstockCudaHeaders_VERSION})
string(REGEX MATCH "^[0-9]+" PENSTOCK_CUDA_MAJOR ${PenstockCudaHeaders_VERSION})
math(EXPR PENSTOCK_CUDA_NEXT_MAJOR "${PENSTOCK_CUDA_MAJOR} + 1")
configure_package_config_file(cmake/penstock-config.cmake.in ${PROJECT_BINARY_DIR}/penstock-config.cmake
                              INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/penstock-config-version.cmake
                                 COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/penstock-config.cmake
              ${PROJECT_BINARY_DIR}/penstock-config-version.cmake
              cmake/FindPenstockCudaHeaders.cmake DESTINATION ${package_dir})
