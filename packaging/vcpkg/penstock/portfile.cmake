# SPDX-License-Identifier: Apache-2.0
#
# An overlay port of the sources around it. In a registry, vcpkg_from_git() or its like would be in the place of SOURCE_PATH.
get_filename_component(SOURCE_PATH "${CURRENT_PORT_DIR}/../../.." ABSOLUTE)
set(VCPKG_BUILD_TYPE release)  # the package has one build of each library, whatever the program's build type is

# vcpkg.json cannot read the version.
file(STRINGS "${SOURCE_PATH}/include/penstock/version.hpp" version REGEX "^#define PENSTOCK_VERSION_(MAJOR|MINOR|PATCH) ")
list(TRANSFORM version REPLACE ".* " "")
list(JOIN version . version)
if(NOT VERSION STREQUAL version)
  message(FATAL_ERROR "vcpkg.json is of version ${VERSION}, and penstock/version.hpp of ${version}")
endif()

vcpkg_check_features(
  OUT_FEATURE_OPTIONS options
  FEATURES cuda PENSTOCK_WITH_CUDA
           emulation PENSTOCK_WITH_EMULATION
           gds PENSTOCK_BUILD_GDS
           images PENSTOCK_BUILD_IMAGES
           remote PENSTOCK_BUILD_REMOTE
           tools PENSTOCK_BUILD_PACK_PROGRAM
           trace PENSTOCK_BUILD_TRACE
           video PENSTOCK_BUILD_VIDEO)
set(trace_program OFF)
if("trace" IN_LIST FEATURES AND "tools" IN_LIST FEATURES)
  set(trace_program ON)
endif()

set(nvdec OFF)
if("video" IN_LIST FEATURES AND "cuda" IN_LIST FEATURES)
  set(nvdec ON)
endif()

vcpkg_cmake_configure(
  SOURCE_PATH "${SOURCE_PATH}"
  OPTIONS ${options}
          -DPENSTOCK_BUILD_TRACE_PROGRAM=${trace_program}
          -DPENSTOCK_VIDEO_WITH_NVDEC=${nvdec}
          -DPENSTOCK_WITH_NVTX=ON
          -DPENSTOCK_BUILD_TESTS=OFF
          -DPENSTOCK_BUILD_EXAMPLES=OFF
          -DPENSTOCK_BUILD_BENCHMARKS=OFF)
vcpkg_cmake_install()
vcpkg_cmake_config_fixup(CONFIG_PATH lib/cmake/penstock)
vcpkg_fixup_pkgconfig(SKIP_CHECK)  # what it would check needs CUDA's headers
if("tools" IN_LIST FEATURES)
  # penstock-trace looks for its library in ../lib/penstock.
  set(tools "${CURRENT_PACKAGES_DIR}/tools/${PORT}")
  file(MAKE_DIRECTORY "${tools}/lib")
  file(RENAME "${CURRENT_PACKAGES_DIR}/bin" "${tools}/bin")
  if(trace_program)
    file(RENAME "${CURRENT_PACKAGES_DIR}/lib/penstock" "${tools}/lib/penstock")
  endif()
endif()
file(REMOVE_RECURSE "${CURRENT_PACKAGES_DIR}/share/doc")
vcpkg_install_copyright(FILE_LIST "${SOURCE_PATH}/LICENSE")
file(INSTALL "${CMAKE_CURRENT_LIST_DIR}/usage" DESTINATION "${CURRENT_PACKAGES_DIR}/share/${PORT}")
