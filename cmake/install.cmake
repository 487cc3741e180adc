# SPDX-License-Identifier: Apache-2.0
#
# Installs the headers, the libraries, the programs, and the package that find_package(penstock) finds; the build folder is such
# a package, too (penstock_DIR). There are two components of CMake: `dev` for those who compile with penstock, `tools` for
# those who run its programs. The installed tree can be moved: neither the package nor the file names in messages contain a
# path of the machine that built it (-fmacro-prefix-map in CMakeLists.txt). Debug information does contain such paths.

include(CMakePackageConfigHelpers)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/penstock)

# install_part(<name of the targets' file> <folder of its headers> <library>...): those of the libraries that exist.
function(install_part file headers)
  set(libraries)
  foreach(library IN LISTS ARGN)
    if(TARGET ${library})
      list(APPEND libraries ${library})
    endif()
  endforeach()
  if(NOT libraries)
    return()
  endif()
  install(TARGETS ${libraries} EXPORT ${file} COMPONENT dev)
  install(EXPORT ${file} NAMESPACE penstock:: DESTINATION ${package_dir} COMPONENT dev)
  export(EXPORT ${file} NAMESPACE penstock:: FILE ${PROJECT_BINARY_DIR}/${file}.cmake)
  if(headers)
    install(DIRECTORY ${headers}/penstock DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT dev)
  endif()
endfunction()
install_part(penstock-targets include penstock_headers)
install_part(penstock-emulated-targets src/emulation/include penstock_emulated)
install_part(penstock-trace-targets src/trace/include penstock_trace)
install_part(penstock-images-targets src/images/include penstock_images)
install_part(penstock-remote-targets src/remote/include penstock_remote)
install_part(penstock-gds-targets src/gds/include penstock_gds)
install_part(penstock-video-targets src/video/include penstock_video)
install_part(penstock-cuda-targets "" penstock_penstock penstock_header_only)

foreach(program IN ITEMS penstock-trace penstock-pack)
  if(TARGET ${program})
    install(TARGETS ${program} COMPONENT tools)
    install(FILES docs/man/${program}.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT tools)
  endif()
endforeach()
if(TARGET penstock_trace_inject)
  install(TARGETS penstock_trace_inject LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/penstock COMPONENT tools)
endif()
foreach(component IN ITEMS dev tools)
  install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DATAROOTDIR}/doc/penstock COMPONENT ${component})
endforeach()

include(cmake/sbom.cmake)

# The libraries are for one major version of CUDA, and call no function newer than the version below: a library that was built
# with CUDA 12.8 or a newer 12 calls cudaStreamGetDevice.
string(REGEX MATCH "^[0-9]+" PENSTOCK_CUDA_MAJOR ${PenstockCudaHeaders_VERSION})
math(EXPR PENSTOCK_CUDA_NEXT_MAJOR "${PENSTOCK_CUDA_MAJOR} + 1")
set(PENSTOCK_CUDA_VERSION ${PENSTOCK_CUDA_MAJOR}.0)
if(PENSTOCK_CUDA_MAJOR EQUAL 12 AND PenstockCudaHeaders_VERSION VERSION_LESS 12.8)
  set(PENSTOCK_CUDA_VERSION ${penstock_least_CUDAToolkit})
elseif(PENSTOCK_CUDA_MAJOR EQUAL 12)
  set(PENSTOCK_CUDA_VERSION 12.8)
endif()
configure_package_config_file(cmake/penstock-config.cmake.in ${PROJECT_BINARY_DIR}/penstock-config.cmake
                              INSTALL_DESTINATION ${package_dir})
set(compatibility SameMajorVersion)
if(PROJECT_VERSION_MAJOR EQUAL 0)
  set(compatibility SameMinorVersion)
endif()
write_basic_package_version_file(${PROJECT_BINARY_DIR}/penstock-config-version.cmake COMPATIBILITY ${compatibility})
configure_file(cmake/FindPenstockCudaHeaders.cmake FindPenstockCudaHeaders.cmake COPYONLY)
configure_file(cmake/FindFFmpeg.cmake FindFFmpeg.cmake COPYONLY)
foreach(name IN ITEMS penstock-config penstock-config-version FindPenstockCudaHeaders FindFFmpeg)
  install(FILES ${PROJECT_BINARY_DIR}/${name}.cmake DESTINATION ${package_dir} COMPONENT dev)
endforeach()

# For builds without CMake: `pkg-config --cflags --libs penstock`, or penstock-emulated.
function(install_pc name library description libraries)
  if(TARGET ${library})
    file(RELATIVE_PATH prefix ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
    configure_file(cmake/penstock.pc.in ${PROJECT_BINARY_DIR}/${name}.pc @ONLY)
    install(FILES ${PROJECT_BINARY_DIR}/${name}.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT dev)
  endif()
endfunction()
install_pc(penstock penstock_penstock "${PROJECT_DESCRIPTION}"
           "-lpenstock -Wl,--undefined=penstock_runtime_of_cuda -L\${cuda}/lib64 -lcudart")
install_pc(penstock-emulated penstock_emulated "${PROJECT_DESCRIPTION}, over a CUDA runtime on CPU threads"
           "-lpenstock_emulated -Wl,--undefined=penstock_runtime_emulated")

if(PROJECT_IS_TOP_LEVEL)
  include(cmake/cpack.cmake)
endif()
