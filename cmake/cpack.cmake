# SPDX-License-Identifier: Apache-2.0
#
# Packages of Debian and Ubuntu: `cpack -G DEB` in the build folder makes libpenstock-dev of the component dev, and
# penstock-tools of the component tools. Configure with -DCMAKE_INSTALL_PREFIX=/usr, so that the libraries come into the
# folder of the architecture. CUDA is no dependency, since NVIDIA's packages have another name for each version.

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME penstock)
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGE_VENDOR "The penstock authors")
set(CPACK_PACKAGE_CONTACT ${CPACK_PACKAGE_VENDOR})
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_COMPONENTS_ALL dev)
if(TARGET penstock-trace OR TARGET penstock-pack)
  list(APPEND CPACK_COMPONENTS_ALL tools)
endif()

set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_RELEASE 1)
if(NOT CPACK_DEBIAN_PACKAGE_MAINTAINER)  # Debian wants an address too: -DCPACK_DEBIAN_PACKAGE_MAINTAINER="NAME <ADDRESS>"
  set(CPACK_DEBIAN_PACKAGE_MAINTAINER ${CPACK_PACKAGE_VENDOR})
endif()
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)

set(CPACK_DEBIAN_DEV_PACKAGE_NAME libpenstock-dev)
set(CPACK_DEBIAN_DEV_PACKAGE_SECTION libdevel)
# The summary is the project's description. What follows it is:
set(CPACK_DEBIAN_DEV_DESCRIPTION "Development files: headers, static libraries, the CMake package, and files of
pkg-config. CUDA's headers, 12.4 or newer, are needed besides, as NVIDIA's
packages bring them. penstock::penstock also needs the CUDA runtime library.")
# A static library needs, where it is linked, what it was compiled with.
set(depends libc6-dev)
if(TARGET penstock_images)
  list(APPEND depends libjpeg-dev)
endif()
if(TARGET penstock_remote)
  list(APPEND depends "libcurl4-openssl-dev | libcurl-dev" libexpat1-dev libssl-dev)
endif()
if(TARGET penstock_video)
  list(APPEND depends libavcodec-dev libavformat-dev libavutil-dev)
endif()
list(JOIN depends ", " CPACK_DEBIAN_DEV_PACKAGE_DEPENDS)

set(CPACK_DEBIAN_TOOLS_PACKAGE_NAME penstock-tools)
set(CPACK_DEBIAN_TOOLS_PACKAGE_SECTION utils)
set(CPACK_DEBIAN_TOOLS_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_TOOLS_DESCRIPTION "penstock-trace records what a CUDA program does, and says where its time goes.
penstock-pack makes one packed file of a folder, of tar files or of objects.")

set(CPACK_PRE_BUILD_SCRIPTS ${PROJECT_SOURCE_DIR}/packaging/deb/finish.cmake)
include(CPack)
