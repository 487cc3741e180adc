# SPDX-License-Identifier: Apache-2.0

set(kernel_on_cpu_header ${CMAKE_CURRENT_LIST_DIR}/kernel_on_cpu.hpp)

# add_kernel_on_cpu(<target> <file.cu>): builds the program as plain C++, for penstock::emulated (see kernel_on_cpu.hpp).
function(add_kernel_on_cpu target file)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
  file(READ ${file} program)
  string(REGEX REPLACE "([a-z_]+)<<<[^,>]+, [^,>]+, 0, ([^,>]+)>>>\\(" "kernel_on_cpu::launch<\\1>(\\2, "
                       program "${program}")
  string(REGEX REPLACE "([a-z_]+)<<<[^,>]+, [^,>]+>>>\\(" "kernel_on_cpu::launch<\\1>(nullptr, "
                       program "${program}")
  if(program MATCHES "<<<")
    message(FATAL_ERROR "${CMAKE_CURRENT_SOURCE_DIR}/${file} has a kernel launch in a form that "
                        "${CMAKE_CURRENT_FUNCTION_LIST_FILE} does not know: it knows "
                        "kernel<<<blocks, threads>>>(...) and kernel<<<blocks, threads, 0, stream>>>(...)")
  endif()
  cmake_path(REPLACE_EXTENSION file .cpp OUTPUT_VARIABLE source)
  set(source ${CMAKE_CURRENT_BINARY_DIR}/${source})
  file(CONFIGURE OUTPUT ${source} @ONLY
       CONTENT "#line 1 \"${CMAKE_CURRENT_SOURCE_DIR}/${file}\"\n${program}")
  add_executable(${target} ${source})
  target_compile_options(${target} PRIVATE "SHELL:-include ${kernel_on_cpu_header}")
  target_include_directories(${target} PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
endfunction()
