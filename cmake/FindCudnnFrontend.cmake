# SPDX-License-Identifier: Apache-2.0
#
# Finds cuDNN 9 and the headers of its front end (cudnn-frontend, version 1), which is a separate project. cuDNN may be a
# part of a toolkit or installed alone. scripts/setup unpacks the front end.
#
#   CudnnFrontend_ROOT, Cudnn_ROOT   hints for the two (variables or environment)
#   CudnnFrontend::cudnn             cuDNN
#   CudnnFrontend::CudnnFrontend     the front end's headers, as SYSTEM directories, and the libraries that they call
#   CudnnFrontend_VERSION            for example 1.32.0
#
# Call find_package(CUDAToolkit) first.

set(_cudnn_dependencies ${CMAKE_CURRENT_LIST_DIR}/../.deps)
set(_cudnn_roots ${Cudnn_ROOT} ENV Cudnn_ROOT ${CUDAToolkit_LIBRARY_ROOT} ${CUDAToolkit_INCLUDE_DIRS}/..
                 ${_cudnn_dependencies}/nvidia/cudnn)
find_path(CudnnFrontend_CUDNN_DIR cudnn.h HINTS ${_cudnn_roots} PATH_SUFFIXES include)
find_library(CudnnFrontend_CUDNN_LIBRARY NAMES cudnn libcudnn.so.9 HINTS ${_cudnn_roots}
             PATH_SUFFIXES lib64 lib)
find_path(CudnnFrontend_INCLUDE_DIR cudnn_frontend.h
          HINTS ${CudnnFrontend_ROOT} ENV CudnnFrontend_ROOT ${_cudnn_dependencies}/cudnn-frontend
          PATH_SUFFIXES include)
unset(_cudnn_roots)
unset(_cudnn_dependencies)
mark_as_advanced(CudnnFrontend_CUDNN_DIR CudnnFrontend_CUDNN_LIBRARY CudnnFrontend_INCLUDE_DIR)

# Sets the variable to the number that `#define name` has in a file.
function(_cudnn_number variable file name)
  file(STRINGS ${file} line REGEX "^#define +${name} +[0-9]+" LIMIT_COUNT 1)
  string(REGEX MATCH "[0-9]+$" number "${line}")
  set(${variable} "${number}" PARENT_SCOPE)
endfunction()

if(CudnnFrontend_INCLUDE_DIR AND EXISTS ${CudnnFrontend_INCLUDE_DIR}/cudnn_frontend_version.h)
  foreach(part IN ITEMS MAJOR MINOR PATCH)
    _cudnn_number(_cudnn_${part} ${CudnnFrontend_INCLUDE_DIR}/cudnn_frontend_version.h
                  CUDNN_FRONTEND_${part}_VERSION)
  endforeach()
  set(CudnnFrontend_VERSION ${_cudnn_MAJOR}.${_cudnn_MINOR}.${_cudnn_PATCH})
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(
  CudnnFrontend HANDLE_VERSION_RANGE VERSION_VAR CudnnFrontend_VERSION
  REQUIRED_VARS CudnnFrontend_INCLUDE_DIR CudnnFrontend_CUDNN_DIR CudnnFrontend_CUDNN_LIBRARY
  REASON_FAILURE_MESSAGE "scripts/setup gets the front end's headers, cuDNN 9 is to be installed.")

if(CudnnFrontend_FOUND AND NOT TARGET CudnnFrontend::CudnnFrontend)
  add_library(CudnnFrontend::cudnn UNKNOWN IMPORTED)
  set_target_properties(
    CudnnFrontend::cudnn PROPERTIES IMPORTED_LOCATION ${CudnnFrontend_CUDNN_LIBRARY}
                                    INTERFACE_INCLUDE_DIRECTORIES ${CudnnFrontend_CUDNN_DIR})
  add_library(CudnnFrontend::CudnnFrontend INTERFACE IMPORTED)
  target_include_directories(CudnnFrontend::CudnnFrontend INTERFACE ${CudnnFrontend_INCLUDE_DIR})
  target_link_libraries(CudnnFrontend::CudnnFrontend INTERFACE CudnnFrontend::cudnn CUDA::nvrtc
                                                               CUDA::cudart)
endif()
