# SPDX-License-Identifier: Apache-2.0
#
# The functions that the library exports are those of the table of its seam (functions.def), from which
# docs/emulation-rules.md is written.
#   cmake -DNM=nm -DLIBRARY=libpenstock_emulated.a -DSOURCE_DIR=. -P call_list.cmake

cmake_minimum_required(VERSION 3.25)

# Without state and without a failure, so not in the seam's table.
set(texts cudaGetErrorName cudaGetErrorString)

# ---- What the seam knows
file(STRINGS ${SOURCE_DIR}/src/emulation/functions.def entries REGEX "^FUNCTION\\(")
set(known ${texts})
foreach(entry IN LISTS entries)
  string(REGEX REPLACE "^FUNCTION\\(([A-Za-z0-9]+), .*$" "\\1" name "${entry}")
  list(APPEND known ${name})
endforeach()

# ---- What is exported
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
