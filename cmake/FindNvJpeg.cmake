# SPDX-License-Identifier: Apache-2.0
#
# Finds nvJPEG's header; its library is loaded at run time, when an engine is made.

find_path(PENSTOCK_NVJPEG_INCLUDE_DIR nvjpeg.h
          HINTS ${PenstockCudaHeaders_RUNTIME_DIR} ${CUDAToolkit_INCLUDE_DIRS}
                ${PROJECT_SOURCE_DIR}/.deps/nvjpeg/include)
mark_as_advanced(PENSTOCK_NVJPEG_INCLUDE_DIR)
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(NvJpeg REQUIRED_VARS PENSTOCK_NVJPEG_INCLUDE_DIR)
