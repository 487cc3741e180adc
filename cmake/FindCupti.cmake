# SPDX-License-Identifier: Apache-2.0
#
# Finds CUPTI's header; its library is loaded at run time, when a session begins.

find_path(PENSTOCK_CUPTI_INCLUDE_DIR cupti.h
          HINTS ${PenstockCudaHeaders_RUNTIME_DIR} ${PenstockCudaHeaders_RUNTIME_DIR}/../extras/CUPTI/include
                ${CUDAToolkit_INCLUDE_DIRS})
mark_as_advanced(PENSTOCK_CUPTI_INCLUDE_DIR)
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Cupti REQUIRED_VARS PENSTOCK_CUPTI_INCLUDE_DIR)
