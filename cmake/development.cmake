# SPDX-License-Identifier: Apache-2.0
#
# What penstock's own tests, examples and benchmarks are built with. A project that uses penstock
# gets none of it.
#
#   penstock_warnings      link it PRIVATE: warnings, and each of them an error
#   CMAKE_CUDA_COMPILER    set where CUDA C++ can be compiled, that is where .cu targets are defined

add_library(penstock_warnings INTERFACE)
if(PROJECT_IS_TOP_LEVEL)
  set(gcc_warnings -Wall -Wextra -Wshadow -Wconversion -Wnon-virtual-dtor)
  if(CMAKE_UNITY_BUILD AND CMAKE_CXX_COMPILER_ID STREQUAL GNU)
    list(APPEND gcc_warnings -Wno-subobject-linkage)  # It takes each source for a header.
  endif()
  list(JOIN gcc_warnings "," host_warnings)
  target_compile_options(
    penstock_warnings
    INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:${gcc_warnings};-Wpedantic;-Werror>"
              "$<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=${host_warnings};--Werror=all-warnings>")
endif()

if(PENSTOCK_WITH_CUDA AND CUDAToolkit_NVCC_EXECUTABLE
   AND (PENSTOCK_BUILD_TESTS OR PENSTOCK_BUILD_EXAMPLES OR PENSTOCK_BUILD_BENCHMARKS))
  set(CMAKE_CUDA_COMPILER ${CUDAToolkit_NVCC_EXECUTABLE} CACHE FILEPATH "The CUDA compiler")
  set(CMAKE_CUDA_ARCHITECTURES 90 CACHE STRING "GPUs to compile for, or native")
  enable_language(CUDA)
endif()
