# SPDX-License-Identifier: Apache-2.0
#
# The library must export exactly the functions of functions.def, from which docs/emulation-rules.md is made.
#   cmake -DNM=nm -DLIBRARY=libpenstock_emulated.a -DSOURCE_DIR=. -P call_list.cmake

cmake_minimum_required(VERSION 3.25)

# These two have no state and cannot fail, so they are not in functions.def.
set(texts cudaGetErrorName cudaGetErrorString)

# ---- The functions of functions.def
file(STRINGS ${SOURCE_DIR}/src/emulation/functions.def entries REGEX "^FUNCTION\\(")
set(known ${texts})
foreach(entry IN LISTS entries)
  string(REGEX REPLACE "^FUNCTION\\(([A-Za-z0-9]+), .*$" "\\1" name "${entry}")
  list(APPEND known ${name})
endforeach()

# ---- The exported functions
execute_process(COMMAND ${NM} --defined-only --extern-only ${LIBRARY} OUTPUT_VARIABLE symbols
                ERROR_QUIET COMMAND_ERROR_IS_FATAL ANY)
string(REGEX MATCHALL " T cuda[A-Za-z0-9_]+" symbols "${symbols}")
list(TRANSFORM symbols REPLACE " T " "")
list(TRANSFORM symbols REPLACE "_pt[ds][sz]$" "")
list(REMOVE_DUPLICATES symbols)

set(wrong)
foreach(name IN LISTS symbols)
  if(NOT name IN_LIST known)
    list(APPEND wrong "exported, not in functions.def: ${name}")
  endif()
endforeach()
foreach(name IN LISTS known)
  if(NOT name IN_LIST symbols)
    list(APPEND wrong "in functions.def, not exported: ${name}")
  endif()
endforeach()
if(wrong)
  list(JOIN wrong "\n  " text)
  message(FATAL_ERROR "the lists differ:\n  ${text}")
endif()
list(LENGTH known count)
message(STATUS "${count} functions")
