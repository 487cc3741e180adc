# SPDX-License-Identifier: Apache-2.0
#
# The functions that the library exports, the table of its seam (functions.def) and the table of
# docs/emulation.md are one and the same list.
#   cmake -DNM=nm -DLIBRARY=libpenstock_emulated.a -DSOURCE_DIR=. -P call_list.cmake

cmake_minimum_required(VERSION 3.25)

# Without state and without a failure, so not in the seam's table.
set(texts cudaGetErrorName cudaGetErrorString)

# ---- What the seam knows, by name and classes
file(STRINGS ${SOURCE_DIR}/src/emulation/functions.def entries REGEX "^FUNCTION\\(")
set(known ${texts})
set(rows)
foreach(entry IN LISTS entries)
  string(REGEX MATCH "^FUNCTION\\(([A-Za-z0-9]+), (.*)\\)$" matched "${entry}")
  set(name ${CMAKE_MATCH_1})
  string(REPLACE " | " ", " classes "${CMAKE_MATCH_2}")
  string(REGEX REPLACE "^0$" "" classes "${classes}")
  list(APPEND known ${name})
  list(APPEND rows "| `${name}` | ${classes} |")
endforeach()

# ---- What is exported
execute_process(COMMAND ${NM} --defined-only --extern-only ${LIBRARY} OUTPUT_VARIABLE symbols
                ERROR_QUIET COMMAND_ERROR_IS_FATAL ANY)
string(REGEX MATCHALL " T cuda[A-Za-z0-9_]+" symbols "${symbols}")
list(TRANSFORM symbols REPLACE " T " "")
list(TRANSFORM symbols REPLACE "_pt[ds][sz]$" "")
list(REMOVE_DUPLICATES symbols)

# ---- What the page says
file(STRINGS ${SOURCE_DIR}/docs/emulation.md documented REGEX "^\\| `cuda[A-Za-z0-9]+` \\| [a-z, ]*\\|$")

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
foreach(row IN LISTS rows)
  if(NOT row IN_LIST documented)
    list(APPEND wrong "not in docs/emulation.md: ${row}")
  endif()
endforeach()
foreach(row IN LISTS documented)
  if(NOT row IN_LIST rows)
    list(APPEND wrong "only in docs/emulation.md: ${row}")
  endif()
endforeach()
if(wrong)
  list(JOIN wrong "\n  " text)
  message(FATAL_ERROR "the lists differ:\n  ${text}")
endif()
list(LENGTH rows count)
message(STATUS "${count} functions")
