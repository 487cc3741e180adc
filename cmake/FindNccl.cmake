# SPDX-License-Identifier: Apache-2.0
#
# Finds NCCL in a system package, a toolkit or a Python wheel.
#
#   Nccl_ROOT      hint (variable or environment)
#   Nccl::nccl     its library and header
#   Nccl_VERSION   for example 2.28.9

set(_nccl_hints ${Nccl_ROOT} ENV Nccl_ROOT ${CUDAToolkit_LIBRARY_ROOT} ${CUDAToolkit_INCLUDE_DIRS}/..)
find_path(Nccl_INCLUDE_DIR nccl.h HINTS ${_nccl_hints} PATH_SUFFIXES include)
find_library(Nccl_LIBRARY NAMES nccl libnccl.so.2 HINTS ${_nccl_hints} PATH_SUFFIXES lib64 lib)
unset(_nccl_hints)
mark_as_advanced(Nccl_INCLUDE_DIR Nccl_LIBRARY)

if(Nccl_INCLUDE_DIR)
  foreach(part IN ITEMS MAJOR MINOR PATCH)
    file(STRINGS ${Nccl_INCLUDE_DIR}/nccl.h _nccl_line REGEX "^#define +NCCL_${part} +[0-9]+" LIMIT_COUNT 1)
    string(REGEX MATCH "[0-9]+$" _nccl_${part} "${_nccl_line}")
  endforeach()
  set(Nccl_VERSION ${_nccl_MAJOR}.${_nccl_MINOR}.${_nccl_PATCH})
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Nccl VERSION_VAR Nccl_VERSION
                                  REQUIRED_VARS Nccl_LIBRARY Nccl_INCLUDE_DIR)

if(Nccl_FOUND AND NOT TARGET Nccl::nccl)
  add_library(Nccl::nccl UNKNOWN IMPORTED)
  set_target_properties(Nccl::nccl PROPERTIES IMPORTED_LOCATION ${Nccl_LIBRARY}
                                              INTERFACE_INCLUDE_DIRECTORIES ${Nccl_INCLUDE_DIR})
endif()
