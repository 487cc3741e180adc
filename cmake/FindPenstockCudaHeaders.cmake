# SPDX-License-Identifier: Apache-2.0
#
# Finds the headers of CUDA that penstock's own headers include: the runtime API, libcudacxx and NVTX3. A CUDA toolkit has
# them, and so have the wheels that scripts/setup unpacks where there is no toolkit. It looks for no library.
#
#   PenstockCudaHeaders_ROOT                  hint (variable or environment) for the headers alone
#   CUDAToolkit_ROOT                          hint for the whole toolkit
#   PenstockCudaHeaders::PenstockCudaHeaders  the target; its directories are SYSTEM directories
#   PenstockCudaHeaders_VERSION               the version of the CUDA runtime API, for example 13.0

# The toolkit whose runtime library is linked comes first, the headers that scripts/setup unpacked come last.
set(_penstock_cuda_roots
    ${CUDAToolkit_INCLUDE_DIRS} ${CUDAToolkit_ROOT} ENV CUDAToolkit_ROOT ENV CUDA_PATH /usr/local/cuda
    ${CMAKE_CURRENT_LIST_DIR}/../.deps/nvidia/cu13)
find_path(PenstockCudaHeaders_RUNTIME_DIR cuda_runtime_api.h
          HINTS ${_penstock_cuda_roots} PATH_SUFFIXES include)
find_path(PenstockCudaHeaders_LIBCUDACXX_DIR cuda/std/mdspan
          HINTS ${PenstockCudaHeaders_RUNTIME_DIR} ${_penstock_cuda_roots}
          PATH_SUFFIXES cccl include/cccl include)
find_path(PenstockCudaHeaders_NVTX_DIR nvtx3/nvToolsExtCudaRt.h
          HINTS ${PenstockCudaHeaders_RUNTIME_DIR} ${_penstock_cuda_roots} PATH_SUFFIXES include)
unset(_penstock_cuda_roots)
mark_as_advanced(PenstockCudaHeaders_RUNTIME_DIR PenstockCudaHeaders_LIBCUDACXX_DIR
                 PenstockCudaHeaders_NVTX_DIR)

if(PenstockCudaHeaders_RUNTIME_DIR)
  file(STRINGS ${PenstockCudaHeaders_RUNTIME_DIR}/cuda_runtime_api.h _penstock_cuda_number
       REGEX "^#define CUDART_VERSION +[0-9]+")
  string(REGEX MATCH "[0-9]+$" _penstock_cuda_number "${_penstock_cuda_number}")
  math(EXPR _penstock_cuda_major "${_penstock_cuda_number} / 1000")
  math(EXPR _penstock_cuda_minor "${_penstock_cuda_number} % 1000 / 10")
  set(PenstockCudaHeaders_VERSION ${_penstock_cuda_major}.${_penstock_cuda_minor})
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(
  PenstockCudaHeaders HANDLE_VERSION_RANGE VERSION_VAR PenstockCudaHeaders_VERSION
  REQUIRED_VARS PenstockCudaHeaders_RUNTIME_DIR PenstockCudaHeaders_LIBCUDACXX_DIR
                PenstockCudaHeaders_NVTX_DIR
  REASON_FAILURE_MESSAGE "Install a CUDA toolkit, 12.4 or newer, or get the headers alone with penstock's \
scripts/setup, or set PenstockCudaHeaders_ROOT to where they are.")

if(PenstockCudaHeaders_FOUND AND NOT TARGET PenstockCudaHeaders::PenstockCudaHeaders)
  add_library(PenstockCudaHeaders::PenstockCudaHeaders INTERFACE IMPORTED)
  target_include_directories(
    PenstockCudaHeaders::PenstockCudaHeaders
    INTERFACE ${PenstockCudaHeaders_RUNTIME_DIR} ${PenstockCudaHeaders_LIBCUDACXX_DIR}
              ${PenstockCudaHeaders_NVTX_DIR})
endif()
