# SPDX-License-Identifier: Apache-2.0
#
# The packages that the project looks for, and the messages for those that are missing.
#
#   penstock_least_<package>
#       the least version, if that matters.
#   penstock_need(<package> [<argument of find_package>...])
#       finds a package that is needed. If it is missing, the configuration goes on, so that it lists every missing package,
#       and fails at the end.
#   penstock_use(<package> <what is left out> [<argument of find_package>...])
#       finds a package that is optional. If it is missing, a message says what is left out.
#
# Both are macros, because find_package sets variables such as <package>_FOUND.
#
#   penstock_option(<option> <text> <default> <package>...)
#       defines an option that needs packages, and looks for them unless it is OFF. If it is ON, a missing package is an
#       error. AUTO is ON if all are found in this run of CMake, so a package that is installed later is used without a fresh
#       build folder; else a message says what is left out.

if(PROJECT_IS_TOP_LEVEL)
  set(penstock_setup scripts/setup)
else()
  set(penstock_setup ${PROJECT_SOURCE_DIR}/scripts/setup)
endif()

set(penstock_least_PenstockCudaHeaders 12.4)
set(penstock_least_CUDAToolkit 12.4)
set(penstock_least_CURL 7.68)
set(penstock_least_OpenSSL 3.0)
set(penstock_least_nlohmann_json 3.10)
set(penstock_least_FFmpeg 59)  # of libavformat: FFmpeg 5.0
set(penstock_least_CudnnFrontend 1.32)
set(penstock_least_Nccl 2.28)

# penstock_bring_<package>: how to get the package.
set(penstock_bring_PenstockCudaHeaders
    "`${penstock_setup} demo` brings CUDA's headers. Or install a CUDA toolkit, 12.4 or newer, and set \
CUDAToolkit_ROOT unless it is /usr/local/cuda. PenstockCudaHeaders_ROOT says where headers alone are")
set(penstock_bring_CUDAToolkit
    "Install a CUDA toolkit, 12.4 or newer, and set CUDAToolkit_ROOT unless it is /usr/local/cuda")
set(penstock_bring_nvcc "Install the compiler of the CUDA toolkit (NVIDIA's packages: cuda-nvcc), or set CUDAToolkit_ROOT")
set(penstock_bring_JPEG "`${penstock_setup} demo` brings libjpeg-turbo (Debian: libjpeg-dev)")
set(penstock_bring_CURL "`${penstock_setup} demo` brings libcurl 7.68 or newer (Debian: libcurl4-openssl-dev)")
set(penstock_bring_OpenSSL "`${penstock_setup} demo` brings OpenSSL 3 or newer (Debian: libssl-dev)")
set(penstock_bring_EXPAT "`${penstock_setup} demo` brings libexpat (Debian: libexpat1-dev)")
set(penstock_bring_FFmpeg
    "`${penstock_setup} test` brings FFmpeg's libraries, 5.0 or newer (Debian: libavformat-dev, libavcodec-dev, libavutil-dev)")
set(penstock_bring_CLI11 "`${penstock_setup} demo` brings it (Debian: libcli11-dev)")
set(penstock_bring_nlohmann_json "`${penstock_setup} demo` brings it (Debian: nlohmann-json3-dev)")
set(penstock_bring_PNG "`${penstock_setup} demo` brings it (Debian: libpng-dev)")
set(penstock_bring_Python3 "`${penstock_setup} demo` brings it (Debian: python3)")
set(penstock_bring_Catch2 "`${penstock_setup} demo` brings it (Debian: catch2)")
set(penstock_bring_benchmark "`${penstock_setup} test` brings it (Debian: libbenchmark-dev)")
set(penstock_bring_TBB "`${penstock_setup} test` brings it (Debian: libtbb-dev)")
set(penstock_bring_CudnnFrontend
    "Install cuDNN 9 beside the CUDA toolkit, or set Cudnn_ROOT. `${penstock_setup} test` then brings the \
headers of its front end")
set(penstock_bring_Nccl "Install NCCL 2.28 or newer (NVIDIA's packages: libnccl-dev), or set Nccl_ROOT")
set(penstock_bring_Cupti "cupti.h comes with a CUDA toolkit, and `${penstock_setup} demo` brings it")
set(penstock_bring_NvJpeg "It comes with a CUDA toolkit, or `${penstock_setup} test` brings it")
set(penstock_bring_NvDec "`${penstock_setup} test` brings it (Debian: libffmpeg-nvenc-dev)")

# penstock_without_<package>: the option that leaves out what needs the package.
set(penstock_without_CUDAToolkit -DPENSTOCK_WITH_CUDA=OFF)
set(penstock_without_JPEG -DPENSTOCK_BUILD_IMAGES=OFF)
foreach(package IN ITEMS CURL OpenSSL EXPAT)
  set(penstock_without_${package} -DPENSTOCK_BUILD_REMOTE=OFF)
endforeach()
set(penstock_without_FFmpeg -DPENSTOCK_BUILD_VIDEO=OFF)
set(penstock_without_Cupti -DPENSTOCK_TRACE_WITH_CUPTI=OFF)
set(penstock_without_NvJpeg -DPENSTOCK_IMAGES_WITH_NVJPEG=OFF)
set(penstock_without_NvDec -DPENSTOCK_VIDEO_WITH_NVDEC=OFF)
set(penstock_without_CLI11
    "-DPENSTOCK_BUILD_EXAMPLES=OFF -DPENSTOCK_BUILD_TRACE_PROGRAM=OFF -DPENSTOCK_BUILD_PACK_PROGRAM=OFF")
set(penstock_without_nlohmann_json "-DPENSTOCK_BUILD_EXAMPLES=OFF -DPENSTOCK_BUILD_TESTS=OFF -DPENSTOCK_BUILD_REMOTE=OFF")
set(penstock_without_nvcc
    "-DPENSTOCK_WITH_CUDA=OFF; or the library alone: -DPENSTOCK_BUILD_TESTS=OFF -DPENSTOCK_BUILD_EXAMPLES=OFF \
-DPENSTOCK_BUILD_BENCHMARKS=OFF")
set(penstock_without_Python3 -DPENSTOCK_BUILD_TESTS=OFF)
set(penstock_without_Catch2 -DPENSTOCK_BUILD_TESTS=OFF)
set(penstock_without_benchmark -DPENSTOCK_BUILD_BENCHMARKS=OFF)
set(penstock_without_TBB -DPENSTOCK_BUILD_BENCHMARKS=OFF)

# penstock_tell_missing(<package> [<what is left out>]): says what is left out; without that argument it is an error, which is
# reported once for each package.
function(penstock_tell_missing package)
  set(missing "${package} is missing")
  if(${package}_VERSION)
    set(missing "${package} ${${package}_VERSION} is too old")
  endif()
  if(ARGC GREATER 1)
    message(STATUS "${missing}: ${ARGV1}. ${penstock_bring_${package}}.")
    return()
  endif()
  get_property(told DIRECTORY ${PROJECT_SOURCE_DIR} PROPERTY penstock_told)
  if(package IN_LIST told)
    return()
  endif()
  set_property(DIRECTORY ${PROJECT_SOURCE_DIR} APPEND PROPERTY penstock_told ${package})
  set(without ".")
  if(penstock_without_${package})
    set(without ". To do without: ${penstock_without_${package}}")
  endif()
  message(SEND_ERROR "${missing}. ${penstock_bring_${package}}${without}")
endfunction()

macro(penstock_need package)
  find_package(${package} ${penstock_least_${package}} ${ARGN} QUIET)
  if(NOT ${package}_FOUND)
    penstock_tell_missing(${package})
  endif()
endmacro()

macro(penstock_use package left_out)
  find_package(${package} ${penstock_least_${package}} ${ARGN} QUIET)
  if(NOT ${package}_FOUND)
    penstock_tell_missing(${package} "${left_out}")
  endif()
endmacro()

macro(penstock_option name text default)
  set(${name} ${default} CACHE STRING "${text}: ON, OFF, or AUTO for what this machine has")
  set_property(CACHE ${name} PROPERTY STRINGS AUTO ON OFF)
  if("${${name}}" STREQUAL "AUTO")
    set(${name} ON)
    foreach(package ${ARGN})
      penstock_use(${package} "${name} is OFF" GLOBAL)
      if(NOT ${package}_FOUND)
        set(${name} OFF)
      endif()
    endforeach()
  elseif(${name})
    foreach(package ${ARGN})
      penstock_need(${package} GLOBAL)
    endforeach()
  endif()
endmacro()
