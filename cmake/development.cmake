# SPDX-License-Identifier: Apache-2.0
#
# Settings for penstock's own tests, examples and benchmarks. They do not apply to projects that use penstock.
#
#   penstock_warnings      turns warnings on (link it PRIVATE); PENSTOCK_WARNINGS_AS_ERRORS makes them errors
#   penstock_all_warnings  adds the warnings that users of the headers may turn on
#   penstock_large_heap    makes the compiler collect its garbage less often; penstock_warnings links it
#   CMAKE_CUDA_COMPILER    is set if CUDA C++ can be compiled; only then there are targets with .cu files
#   PENSTOCK_LADDER_IN_ONE is an option: all emulated rungs of a ladder become one program, and so do all recipes
#   penstock_add_ladder_in_one(<name> ...)   defines such a program

add_library(penstock_warnings INTERFACE)
add_library(penstock_all_warnings INTERFACE)
target_link_libraries(penstock_all_warnings INTERFACE penstock_warnings)
# g++ searches its heap for garbage each time the heap has doubled, beginning at 128 MB. If it begins at 512 MB, a test
# compiles in 5 to 10 % less time, and the largest sources of the preset asan take 1.66 GB of memory instead of 1.53 (g++ 12,
# 26 November 2026).
add_library(penstock_large_heap INTERFACE)
target_link_libraries(penstock_warnings INTERFACE penstock_large_heap)
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  target_compile_options(penstock_large_heap
                         INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:SHELL:--param ggc-min-heapsize=524288>")
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)  # In a unity build it takes the included sources for headers.
  target_compile_options(penstock_warnings INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-subobject-linkage>)
endif()
# At -O3 g++ 12 warns without reason that `"text" + std::string` is a copy that overlaps itself (GCC's bug 105329).
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  target_compile_options(penstock_warnings INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-restrict>
                                                     $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wno-restrict>)
endif()
# It is off by default, because the user's compiler may be newer than those of CI and have other warnings.
option(PENSTOCK_WARNINGS_AS_ERRORS "A warning is an error in what only this project builds" OFF)
if(PROJECT_IS_TOP_LEVEL AND (PENSTOCK_BUILD_TESTS OR PENSTOCK_BUILD_EXAMPLES OR PENSTOCK_BUILD_BENCHMARKS))
  set(gcc_warnings -Wall -Wextra -Wshadow -Wconversion -Wnon-virtual-dtor)
  list(JOIN gcc_warnings "," host_warnings)
  target_compile_options(
    penstock_warnings
    INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:${gcc_warnings};-Wpedantic>"
              "$<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=${host_warnings}>")
  if(PENSTOCK_WARNINGS_AS_ERRORS)
    target_compile_options(penstock_warnings INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Werror>
                                                       $<$<COMPILE_LANGUAGE:CUDA>:--Werror=all-warnings>)
  endif()
  target_compile_options(penstock_all_warnings INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wsign-conversion>)
endif()

if(PENSTOCK_BUILD_TESTS OR PENSTOCK_BUILD_EXAMPLES OR PENSTOCK_BUILD_BENCHMARKS)
  set(builds_cuda ${PENSTOCK_WITH_CUDA})
endif()
if(builds_cuda AND CUDAToolkit_FOUND AND NOT CUDAToolkit_NVCC_EXECUTABLE)
  penstock_tell_missing(nvcc)
elseif(builds_cuda AND CUDAToolkit_FOUND)
  set(CMAKE_CUDA_COMPILER ${CUDAToolkit_NVCC_EXECUTABLE} CACHE FILEPATH "The CUDA compiler")
  set(CMAKE_CUDA_ARCHITECTURES 90 CACHE STRING "GPUs to compile for, or native")
  set(CMAKE_CUDA_RUNTIME_LIBRARY Shared)
  enable_language(CUDA)
endif()

# ---- A ladder as one program ---------------------------------------------------------------------

# A rung is a program of its own, so that a reader can take it as it is. But all rungs instantiate nearly the same templates.
# If only their behaviour counts, as in the tests, one translation unit of all rungs compiles in a fraction of the time.
option(PENSTOCK_LADDER_IN_ONE
       "Build the emulated rungs of a ladder, and the recipes, as one program with many names: it builds faster"
       OFF)

# penstock_add_ladder_in_one(<name> [LANGUAGE CUDA] [PREFIX <prefix>] [SUFFIX <suffix>] SOURCES <source>...
# LIBRARIES <library>...): makes one program of all sources, and beside it a link <stem><suffix> for each source. The name
# by which the program is called says which source's main it runs. The targets <prefix><stem><suffix> are the same as those
# of separate programs.
function(penstock_add_ladder_in_one name)
  cmake_parse_arguments(PARSE_ARGV 1 ladder "" "LANGUAGE;PREFIX;SUFFIX" "SOURCES;LIBRARIES")
  foreach(source IN LISTS ladder_SOURCES)
    cmake_path(GET source STEM stem)
    cmake_path(GET source PARENT_PATH folder)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${source})
    # The headers of a rung are included first, outside of the rung's namespace.
    file(STRINGS ${source} lines REGEX "^#include ")
    foreach(line IN LISTS lines)
      string(REGEX REPLACE "^#include \"(.*)\"$" "${folder}/\\1" file "${line}")
      if(EXISTS ${file})  # otherwise it is on the include path
        set(line "#include \"${file}\"")
      endif()
      list(APPEND includes ${line})
    endforeach()
    string(APPEND programs "namespace rung_${stem} {\n#include \"${source}\"\n}\n\n")
    string(APPEND table "    {\"${stem}${ladder_SUFFIX}\", &start<&rung_${stem}::main>},\n")
    list(APPEND links ${CMAKE_CURRENT_BINARY_DIR}/${stem}${ladder_SUFFIX})
    list(APPEND link_commands COMMAND ${CMAKE_COMMAND} -E create_symlink ${name}
                              ${CMAKE_CURRENT_BINARY_DIR}/${stem}${ladder_SUFFIX})
    add_executable(${ladder_PREFIX}${stem}${ladder_SUFFIX} IMPORTED GLOBAL)
    set_target_properties(${ladder_PREFIX}${stem}${ladder_SUFFIX}
                          PROPERTIES IMPORTED_LOCATION ${CMAKE_CURRENT_BINARY_DIR}/${stem}${ladder_SUFFIX})
  endforeach()
  list(REMOVE_DUPLICATES includes)
  list(JOIN includes "\n" includes)
  set(source ${CMAKE_CURRENT_BINARY_DIR}/${name}.cpp)
  if(ladder_LANGUAGE STREQUAL CUDA)
    set(source ${CMAKE_CURRENT_BINARY_DIR}/${name}.cu)
  endif()
  configure_file(${PROJECT_SOURCE_DIR}/examples/common/ladder_in_one.cpp.in ${source} @ONLY)
  add_executable(${name} ${source})
  target_link_libraries(${name} PRIVATE ${ladder_LIBRARIES} penstock_warnings)
  add_custom_command(TARGET ${name} POST_BUILD ${link_commands} BYPRODUCTS ${links} VERBATIM)
endfunction()
